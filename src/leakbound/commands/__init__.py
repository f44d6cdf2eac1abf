"""Commands for people with records or a finished training of their own."""
