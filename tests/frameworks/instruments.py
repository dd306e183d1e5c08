"""Switches on one instrumentation: `start(kind, settings)` sets up OpenTelemetry as its users do and returns something that can flush.

A kind is either `otel`, which only sets up the SDK (for frameworks that make their own spans), a name of `SPECIAL`, or a dotted name of an
instrumentor class. Several are joined by a comma.
"""

from __future__ import annotations

import importlib
import os
from typing import Any


class Telemetry:
    """Tracer and logger providers of the process."""

    def __init__(self) -> None:
        self.providers: list[Any] = []

    def outer(self, name: str) -> Any:
        """The user's own span around a conversation."""
        from opentelemetry import trace

        return trace.get_tracer("shop").start_as_current_span(name)

    def flush(self) -> None:
        for provider in self.providers:
            if hasattr(provider, "force_flush"):
                provider.force_flush()


def set_up_sdk(settings: dict[str, Any]) -> Telemetry:
    """Spans and logs go to the collector; a request per scenario."""
    from opentelemetry import trace
    from opentelemetry._logs import set_logger_provider
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    telemetry = Telemetry()
    tracers = TracerProvider()
    for name in settings.get("processors") or []:
        # Translators of one vocabulary into another change a span before it is exported.
        tracers.add_span_processor(find(name)())
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), schedule_delay_millis=60000))
    trace.set_tracer_provider(tracers)
    telemetry.providers.append(tracers)
    if settings.get("logs"):
        loggers = LoggerProvider()
        loggers.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(), schedule_delay_millis=60000))
        set_logger_provider(loggers)
        telemetry.providers.append(loggers)
        if settings["logs"] == "logging":
            attach_logging(loggers)
        else:
            set_up_events(loggers)
    return telemetry


def set_up_events(loggers: Any) -> None:
    """Older instrumentations write events, which are logs with a name."""
    try:
        from opentelemetry._events import set_event_logger_provider
        from opentelemetry.sdk._events import EventLoggerProvider
    except ImportError:
        return
    set_event_logger_provider(EventLoggerProvider(loggers))


def attach_logging(loggers: Any) -> None:
    import logging

    from opentelemetry.sdk._logs import LoggingHandler

    logging.getLogger("semantic_kernel").setLevel(logging.INFO)
    logging.getLogger().addHandler(LoggingHandler(logger_provider=loggers))


def start_logfire(settings: dict[str, Any]) -> Telemetry:
    """Logfire configures the SDK itself and exports to any OTLP endpoint in addition to its own service."""
    import logfire

    logfire.configure(send_to_logfire=False, console=False, service_name=os.environ["OTEL_SERVICE_NAME"], inspect_arguments=False)
    for what in settings["logfire"]:
        getattr(logfire, f"instrument_{what}")()
    telemetry = Telemetry()
    telemetry.providers.append(logfire)
    return telemetry


def start_langfuse(settings: dict[str, Any]) -> Telemetry:
    from langfuse import Langfuse

    client = Langfuse(public_key="pk", secret_key="sk", **{settings.get("address", "base_url"): os.environ["OTLP_URL"]})
    telemetry = Telemetry()
    client.force_flush = client.flush
    telemetry.providers.append(client)
    return telemetry


def start_mlflow(settings: dict[str, Any]) -> Telemetry:
    import mlflow

    for what in settings["mlflow"]:
        getattr(mlflow, what).autolog()
    telemetry = Telemetry()

    class Flush:
        def force_flush(self) -> None:
            mlflow.flush_trace_async_logging()
            from mlflow.tracing.provider import provider

            real = provider.get()
            if hasattr(real, "force_flush"):
                real.force_flush()

    telemetry.providers.append(Flush())
    telemetry.outer = mlflow.start_span  # type: ignore[method-assign]
    return telemetry


def start_traceloop(settings: dict[str, Any]) -> Telemetry:
    from opentelemetry import trace
    from traceloop.sdk import Traceloop

    Traceloop.init(
        app_name=os.environ["OTEL_SERVICE_NAME"], api_endpoint=os.environ["OTLP_URL"], disable_batch=False, telemetry_enabled=False
    )
    telemetry = Telemetry()
    telemetry.providers.append(trace.get_tracer_provider())
    return telemetry


def start_openlit(settings: dict[str, Any]) -> Telemetry:
    import openlit

    telemetry = set_up_sdk(settings)
    openlit.init(application_name=os.environ["OTEL_SERVICE_NAME"], disable_metrics=True, **settings.get("openlit", {}))
    return telemetry


def start_langtrace(settings: dict[str, Any]) -> Telemetry:
    from langtrace_python_sdk import langtrace
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    langtrace.init(
        custom_remote_exporter=OTLPSpanExporter(), batch=True, service_name=os.environ["OTEL_SERVICE_NAME"], disable_logging=True
    )
    telemetry = Telemetry()
    telemetry.providers.append(trace.get_tracer_provider())
    return telemetry


def start_laminar(settings: dict[str, Any]) -> Telemetry:
    from lmnr import Laminar

    port = int(os.environ["OTLP_URL"].rpartition(":")[2])
    Laminar.initialize(project_api_key="none", base_url="http://127.0.0.1", http_port=port, force_http=True)

    class Flush:
        def force_flush(self) -> None:
            Laminar.flush()

    telemetry = Telemetry()
    telemetry.providers.append(Flush())
    # Its spans are children of its own spans only.
    telemetry.outer = Laminar.start_as_current_span  # type: ignore[method-assign]
    return telemetry


class LangSmithFlush:
    """LangSmith creates its spans in a separate thread, some time after the run."""

    def force_flush(self) -> None:
        from langsmith.run_trees import get_cached_client

        get_cached_client().flush()


SPECIAL = {
    "logfire": start_logfire,
    "langfuse": start_langfuse,
    "mlflow": start_mlflow,
    "traceloop": start_traceloop,
    "openlit": start_openlit,
    "langtrace": start_langtrace,
    "laminar": start_laminar,
}


def find(name: str) -> Any:
    """Resolve a dotted name."""
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def start(kind: str, settings: dict[str, Any]) -> Telemetry:
    names = kind.split(",")
    special = next((name for name in names if name in SPECIAL), None)
    telemetry = SPECIAL[special](settings) if special else set_up_sdk(settings)
    if "LANGSMITH_OTEL_ENABLED" in os.environ:
        telemetry.providers.insert(0, LangSmithFlush())
    for name in names:
        if name == "otel" or name in SPECIAL:
            continue
        find(name)(**(settings.get("constructor") or {})).instrument(**(settings.get("instrument") or {}))
    return telemetry
