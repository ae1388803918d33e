"""Translation memories in the form of DeepL's API."""

from __future__ import annotations

import time
from collections.abc import Sequence

from serving.server.dialects.deepl.answers import iso_time
from serving.server.dialects.deepl.memory_wire import (
    DeepLJobError,
    DeepLJobResult,
    DeepLMemory,
    DeepLMemoryJob,
    DeepLRequiredAction,
    DeepLSegment,
    DeepLSegments,
    DeepLTargetSegment,
)
from serving.store.records.memory import MemoryJob, StoredMemory, StoredSegment

VALID_S = 3600.0
"""Seconds within which a file must be uploaded or downloaded. A file that is read for longer counts
as lost."""


def memory_info(found: StoredMemory) -> DeepLMemory:
    """A memory's record."""
    return DeepLMemory(
        translation_memory_id=found.id,
        name=found.name,
        source_language=found.source,
        target_languages=[found.target],
        segment_count=found.segment_count,
        creation_time=iso_time(found.created),
        updated_time=iso_time(found.updated),
    )


def segments_page(
    memory: StoredMemory, page: Sequence[StoredSegment], *, ends: bool
) -> DeepLSegments:
    """A page of a memory's segments; `ends` means that it is the last."""
    return DeepLSegments(
        segments=[
            DeepLSegment(
                source_segment_id=f"{memory.id}-{each.number}",
                source_text=each.source,
                targets=[
                    DeepLTargetSegment(
                        target_segment_id=f"{memory.id}-{each.number}-{memory.target}",
                        target_language=memory.target,
                        target_text=each.target,
                        creation_time=iso_time(each.created),
                    )
                ],
                creation_time=iso_time(each.created),
            )
            for each in page
        ],
        segment_count=memory.segment_count,
        next_page_cursor=None if ends else str(page[-1].number),
    )


def is_late(job: MemoryJob) -> bool:
    """Whether the time for uploading, downloading or reading a file is over."""
    return time.time() > (job.updated if job.state == "reading" else job.created) + VALID_S


def job_info(job: MemoryJob, url: str) -> DeepLMemoryJob:
    """A job's record, with the URL for uploading or downloading its file."""
    return DeepLMemoryJob(
        job_id=job.id,
        operation="export" if _is_export(job) else "import",
        results=[_export(job, url) if _is_export(job) else _import(job)],
        creation_time=iso_time(job.created),
        updated_time=iso_time(job.updated),
    )


def _is_export(job: MemoryJob) -> bool:
    return not job.name


def _export(job: MemoryJob, url: str) -> DeepLJobResult:
    if is_late(job):
        return DeepLJobResult(status="expired")
    return DeepLJobResult(
        status="completed", download_url=url, expires_at=iso_time(job.created + VALID_S)
    )


def _import(job: MemoryJob) -> DeepLJobResult:
    if job.state == "waiting":
        if is_late(job):
            return DeepLJobResult(status="expired")
        action = DeepLRequiredAction(required_action="Send the file to upload_url")
        return DeepLJobResult(status="awaiting_input", status_metadata=action)
    if job.state == "done":
        return DeepLJobResult(
            status="completed",
            translation_memory_id=job.memory_id,
            skipped_segment_count=job.skipped,
        )
    if job.state == "reading" and not is_late(job):
        return DeepLJobResult(status="processing")
    message = job.error or "the server stopped before the file was read; begin another import"
    return DeepLJobResult(status="failed", error=DeepLJobError(message=message))
