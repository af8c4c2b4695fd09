"""What a job is and what states things have: the vocabulary that scheduler, API and client share."""
