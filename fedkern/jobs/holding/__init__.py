"""What a data holder allows, and what has been spent of it: policies, and budgets that outlive every job, in its own files."""
