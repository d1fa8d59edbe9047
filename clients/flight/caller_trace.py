"""The trace that the caller is in, by OpenTelemetry. Imported only if a connection takes it along."""

from __future__ import annotations

from opentelemetry.trace import get_current_span


def traceparent() -> str:
    """Return the caller's current span as the W3C header ``traceparent`` of Flight calls; empty if there is none."""
    span = get_current_span().get_span_context()
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}" if span.is_valid else ""
