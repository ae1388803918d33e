"""Bodies of DeepL's API for translation memories."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from serving.server.http.wire import Count, Wire


class DeepLMemory(Wire):
    """A translation memory's record."""

    translation_memory_id: str
    name: str
    source_language: str
    target_languages: list[str]
    """A list of one language."""
    segment_count: int
    creation_time: str
    """Time in UTC, ISO 8601, as all times here."""
    updated_time: str


class DeepLMemories(Wire):
    """The translation memories of the caller's key, oldest first."""

    translation_memories: list[DeepLMemory]
    total_count: int


class DeepLMemoriesPage(Wire):
    """Selects a page of memories."""

    page: Count = 0
    page_size: Annotated[Count, Field(ge=1, le=25)] = 10


class DeepLSegmentsPage(Wire):
    """Selects a page of a memory's segments."""

    page_size: Annotated[Count, Field(ge=1, le=100)] = 50
    page_cursor: Annotated[str, Field(pattern=r"^\d{1,9}$")] | None = None
    """`next_page_cursor` of the previous page."""
    filter_text: Annotated[str, Field(min_length=2, max_length=1000)] | None = None
    """Only segments that contain this text in either language."""
    filter_case_sensitive: bool = False


class DeepLTargetSegment(Wire):
    """The translation of a segment."""

    target_segment_id: str
    target_language: str
    target_text: str
    creation_time: str


class DeepLSegment(Wire):
    """A sentence of a memory and its translation."""

    source_segment_id: str
    source_text: str
    targets: list[DeepLTargetSegment]
    """A list of one translation."""
    creation_time: str


class DeepLSegments(Wire):
    """Segments of a memory, in the order in which they were added."""

    segments: list[DeepLSegment]
    segment_count: int
    """The number of segments in the whole memory, with or without a filter."""
    next_page_cursor: str | None = None
    """Omitted on the last page."""


class DeepLSourceFile(Wire):
    """The file that will be uploaded."""

    file_name: Annotated[str, Field(min_length=1, max_length=100)]
    content_length: Annotated[int, Field(ge=1)]
    """Size in bytes."""
    content_type: Annotated[str, Field(max_length=127)] = "application/xml"


class DeepLImportParameters(Wire):
    """Options of an import."""

    display_name: str | None = None
    """Name of the memory; default the name of the file."""


class DeepLImportRequest(Wire):
    """A request to import a TMX file as a memory."""

    source_file: DeepLSourceFile
    parameters: DeepLImportParameters = DeepLImportParameters()


class DeepLImport(Wire):
    """The import's job, and the URL that takes the file: send it by PUT, without a key."""

    job_id: str
    upload_url: str
    expires_at: str


class DeepLExportParameters(Wire):
    """Selects the memory to export."""

    translation_memory_id: str


class DeepLExport(Wire):
    """The export's job, which will have the URL of the file."""

    job_id: str
    parameters: DeepLExportParameters


class DeepLRequiredAction(Wire):
    """The step that a job is waiting for."""

    required_action: str


class DeepLJobError(Wire):
    """The reason why a job failed."""

    message: str


class DeepLJobResult(Wire):
    """The state or the result of a job."""

    status: Literal["awaiting_input", "processing", "completed", "failed", "expired"]
    status_metadata: DeepLRequiredAction | None = None
    download_url: str | None = None
    """URL of the exported file; exports only."""
    expires_at: str | None = None
    error: DeepLJobError | None = None
    translation_memory_id: str | None = None
    """Id of the imported memory; completed imports only."""
    skipped_segment_count: int | None = None
    """Number of segments that were not imported; completed imports only."""


class DeepLMemoryJob(Wire):
    """An import or an export of a memory."""

    job_id: str
    operation: Literal["import", "export"]
    product: Literal["translation_memory"] = "translation_memory"
    results: list[DeepLJobResult]
    """A list of one result."""
    creation_time: str
    updated_time: str
