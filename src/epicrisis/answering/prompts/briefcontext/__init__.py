"""The prompt files of the BriefContext paper: `text_*` by its text, `notebook_*` by its notebooks."""
