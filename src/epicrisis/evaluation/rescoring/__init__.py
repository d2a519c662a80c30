"""Reading replies: which choice each one states, by three scorings, and what comes of a run by each."""
