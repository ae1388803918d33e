"""What goes over the wire for translation memories in DeepL's dialect."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from serving.server.http.wire import Count, Wire


class DeepLMemory(Wire):
    """What is known of a translation memory."""

    translation_memory_id: str
    name: str
    source_language: str
    target_languages: list[str]
    """One."""
    segment_count: int
    creation_time: str
    """In UTC (ISO 8601), as all times."""
    updated_time: str


class DeepLMemories(Wire):
    """Translation memories of the key, the oldest first."""

    translation_memories: list[DeepLMemory]
    total_count: int


class DeepLMemoriesPage(Wire):
    """Which memories are asked for."""

    page: Count = 0
    page_size: Annotated[Count, Field(ge=1, le=25)] = 10


class DeepLSegmentsPage(Wire):
    """Which segments of a memory are asked for."""

    page_size: Annotated[Count, Field(ge=1, le=100)] = 50
    page_cursor: Annotated[str, Field(pattern=r"^\d{1,9}$")] | None = None
    """What the answer before gave for it."""
    filter_text: Annotated[str, Field(min_length=2, max_length=1000)] | None = None
    """Only segments that hold this in either language."""
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
    """One."""
    creation_time: str


class DeepLSegments(Wire):
    """Segments of a memory, in the order in which they came."""

    segments: list[DeepLSegment]
    segment_count: int
    """Of the whole memory, whatever the filter."""
    next_page_cursor: str | None = None
    """Left out where no more follow."""


class DeepLSourceFile(Wire):
    """A file that is to come."""

    file_name: Annotated[str, Field(min_length=1, max_length=100)]
    content_length: Annotated[int, Field(ge=1)]
    """Bytes."""
    content_type: Annotated[str, Field(max_length=127)] = "application/xml"


class DeepLImportParameters(Wire):
    """What becomes of a file."""

    display_name: str | None = None
    """Of the memory; the name of the file where it is left out."""


class DeepLImportRequest(Wire):
    """A TMX file that is to become a memory."""

    source_file: DeepLSourceFile
    parameters: DeepLImportParameters = DeepLImportParameters()


class DeepLImport(Wire):
    """Where the file is to be sent, by PUT and without a key."""

    job_id: str
    upload_url: str
    expires_at: str


class DeepLExportParameters(Wire):
    """Which memory is given."""

    translation_memory_id: str


class DeepLExport(Wire):
    """The job that says where a memory may be fetched."""

    job_id: str
    parameters: DeepLExportParameters


class DeepLRequiredAction(Wire):
    """What a client has to do for a job to go on."""

    required_action: str


class DeepLJobError(Wire):
    """Why a job has failed."""

    message: str


class DeepLJobResult(Wire):
    """What has come of a job."""

    status: Literal["awaiting_input", "processing", "completed", "failed", "expired"]
    status_metadata: DeepLRequiredAction | None = None
    download_url: str | None = None
    """Of an export."""
    expires_at: str | None = None
    error: DeepLJobError | None = None
    translation_memory_id: str | None = None
    """Of an import that is done."""
    skipped_segment_count: int | None = None
    """Likewise."""


class DeepLMemoryJob(Wire):
    """A file that becomes a memory, or a memory that becomes a file."""

    job_id: str
    operation: Literal["import", "export"]
    product: Literal["translation_memory"] = "translation_memory"
    results: list[DeepLJobResult]
    """One."""
    creation_time: str
    updated_time: str
