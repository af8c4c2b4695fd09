"""What a job is and what states things have: the words that scheduler, API and client share."""
