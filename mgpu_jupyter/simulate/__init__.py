"""The real scheduling core in virtual time: a trace of jobs in, figures about waiting and use out."""
