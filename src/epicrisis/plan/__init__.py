"""Before anything is spent: how many calls, tokens, dollars and seconds each strategy takes."""
