"""Accounting: from the uses of records in a training to the most that it can have leaked."""
