// The usual OpenTelemetry start of a Node program: one provider, OTLP over HTTP as JSON, a tracer of the shop's own.
import { context, trace, SpanStatusCode } from "@opentelemetry/api";
import { logs } from "@opentelemetry/api-logs";
import { OTLPLogExporter } from "@opentelemetry/exporter-logs-otlp-http";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { registerInstrumentations } from "@opentelemetry/instrumentation";
import { resourceFromAttributes } from "@opentelemetry/resources";
import { BatchLogRecordProcessor, LoggerProvider } from "@opentelemetry/sdk-logs";
import { BatchSpanProcessor } from "@opentelemetry/sdk-trace-base";
import { NodeTracerProvider } from "@opentelemetry/sdk-trace-node";
import { DESK } from "./shop.mjs";

export const SERVICE = process.env.SERVICE_NAME;
export const traceExporter = () => new OTLPTraceExporter({ url: `${DESK}/v1/traces` });
export const resource = () => resourceFromAttributes({ "service.name": SERVICE });

export function startOtel({ processors, instrumentations = [], withLogs = false } = {}) {
  const provider = new NodeTracerProvider({
    resource: resource(),
    spanProcessors: processors ?? [new BatchSpanProcessor(traceExporter())],
  });
  provider.register();
  let records;
  if (withLogs) {
    const processor = new BatchLogRecordProcessor({ exporter: new OTLPLogExporter({ url: `${DESK}/v1/logs` }) });
    records = new LoggerProvider({ resource: resource(), processors: [processor] });
    logs.setGlobalLoggerProvider(records);
  }
  registerInstrumentations({ instrumentations, tracerProvider: provider, loggerProvider: records });
  return {
    provider,
    flush: async () => {
      await provider.forceFlush();
      await records?.forceFlush();
    },
  };
}

// A span of the shop around related turns.
export async function within(name, work) {
  return trace.getTracer("shop").startActiveSpan(name, async (span) => {
    try {
      return await work(span);
    } catch (problem) {
      span.setStatus({ code: SpanStatusCode.ERROR, message: problem.message });
      throw problem;
    } finally {
      span.end();
    }
  });
}

// Two turns need a common root span; one turn does not.
export const around = (inputs, work) => (inputs.length > 1 ? within("conversation", work) : work());
export { context, trace };
