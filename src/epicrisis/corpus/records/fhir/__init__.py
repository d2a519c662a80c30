"""Read notes of patients from FHIR (R4, R4B, R5) in JSON: bundles, NDJSON files, and folders of bulk exports.

`resources` reads files into single resources. `references` resolves patients, encounters and people. `export` puts
everything together: it reads all files of one export and yields notes.
"""
