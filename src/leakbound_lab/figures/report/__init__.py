"""Pages for people: an offline one for each configuration, and those kept in the repository."""
