"""FHIR exports as servers write them: each with the texts that must be read, and those that must be named as not read.

export = EXPORTS["epic_bundle"]()
export.write(folder)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.support.fhir_exports.contents import (
    amendments,
    clinical_documents,
    contained_results,
    cycles_and_copies,
    many_binaries,
    other_patients_encounter,
    other_texts,
    path_traversal,
    r4b_reports,
    r5_documents,
    several_forms,
    stolen_binary,
    unreadable_types,
    versions_in_files,
    wrong_types,
)
from tests.support.fhir_exports.resources import FhirExport
from tests.support.fhir_exports.servers import (
    array_file,
    aws_layout,
    azure_layout,
    batch_response,
    cerner_bundle,
    cerner_report,
    document_bundle,
    epic_bulk,
    epic_bundle,
    files_beside,
    google_layout,
    hapi_history,
    hapi_pages,
    incomplete_manifest,
    inferno_lines,
    ips_document,
    jsonl_layout,
    synthea,
    urn_binaries,
    us_core,
)

EXPORTS: Mapping[str, Callable[[], FhirExport]] = {
    maker.__name__: maker
    for maker in (
        epic_bundle,
        epic_bulk,
        cerner_bundle,
        cerner_report,
        us_core,
        inferno_lines,
        incomplete_manifest,
        hapi_pages,
        hapi_history,
        synthea,
        urn_binaries,
        document_bundle,
        ips_document,
        array_file,
        batch_response,
        google_layout,
        azure_layout,
        aws_layout,
        jsonl_layout,
        files_beside,
        r5_documents,
        amendments,
        clinical_documents,
        wrong_types,
        unreadable_types,
        several_forms,
        other_texts,
        contained_results,
        stolen_binary,
        path_traversal,
        cycles_and_copies,
        other_patients_encounter,
        versions_in_files,
        r4b_reports,
        many_binaries,
    )
}
