"""Traces by OpenTelemetry, where the extra ``telemetry`` is installed and switched on.

Where they go is said by the standard variables, OTEL_EXPORTER_OTLP_ENDPOINT first.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import FastAPI

from mapper.errors import InputError, Problem


def trace_requests(app: FastAPI, exporter: Any = None) -> Any:
    """Trace every request of an application; returns the provider, to be shut down with it.

    ``exporter`` takes the place of OTLP over HTTP. InputError without the extra.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise InputError(
            Problem("telemetry", f"is not installed: {error}", remedy="nestmap[telemetry]")
        ) from error
    resource = Resource.create({"service.name": "nestmap", "service.version": version("nestmap")})
    # A provider of its own, not the process's: two applications may live in one test.
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
    FastAPIInstrumentor.instrument_app(
        app, tracer_provider=provider, excluded_urls="healthz,readyz,metrics"
    )
    return provider
