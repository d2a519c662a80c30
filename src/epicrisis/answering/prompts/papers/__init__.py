"""The prompt files of papers: BriefContext's `text_*` and `notebook_*`, and `record_*` of the EHR study."""
