/** Client of a Labelwright server for browsers and Node 18 or newer; needs `fetch` and nothing else. */

/** One row: numbers, column number to value, a text, or words. All rows of a request are of one kind. */
export type Row = number[] | Record<string, number> | string | WordsRow;

export interface WordsRow {
  tokens?: string[] | null;
  text?: string | null;
  predicate?: number | null;
}

export interface PredictRequest {
  inputs: Row[];
  top_k?: number | null;
  threshold?: number | "tuned" | "per-label" | null;
  model?: string | null;
  mask?: "png" | "rle" | null;
}

export interface EmbedRequest {
  inputs: Row[];
  model?: string | null;
}

export interface ModelHead {
  name: string;
  version: string;
  method: string;
}

export interface LatencyMs {
  queue: number;
  inference: number;
  total: number;
}

export interface Prediction {
  labels: string[];
  scores: number[];
}

export interface MaskPrediction {
  mask: string | number[];
  coverage: number;
}

export interface Span {
  role: string;
  start: number;
  end: number;
  words: string[];
  score: number;
}

export interface SpanPrediction {
  spans: Span[];
}

export interface PredictAnswer {
  model: ModelHead;
  predictions: Prediction[] | MaskPrediction[] | SpanPrediction[];
  latency_ms: LatencyMs;
  request_id: string;
}

export interface EmbedAnswer {
  model: ModelHead;
  embeddings: number[][];
  latency_ms: LatencyMs;
  request_id: string;
}

export interface ImageSize {
  height: number;
  width: number;
}

export interface ModelInput {
  kind: string;
  width?: number | null;
  image?: ImageSize | null;
  names?: string[] | null;
  encoding?: string | null;
  max_tokens?: number | null;
  predicate?: boolean | null;
}

export interface ModelThresholds {
  tuned: number;
  per_label?: number[] | null;
}

export interface ModelSummary {
  name: string;
  version: string;
  method: string;
  task: string;
  dataset: string;
  input: ModelInput;
  label_count: number;
  thresholds: ModelThresholds;
  test_scores: Record<string, number>;
}

export interface CanaryShare {
  version: string;
  share: number;
}

export interface ModelList {
  models: ModelSummary[];
  default: string | null;
  aliases: Record<string, string>;
  canary: Record<string, CanaryShare>;
}

export interface Problem {
  type: string;
  message: string;
  request_id: string;
}

export interface ErrorAnswer {
  error: Problem;
}

/** The server said no; `retryAfter` is in seconds, where it said so (429 and 503). */
export class LabelwrightError extends Error {
  constructor(
    readonly status: number,
    readonly problem: Problem,
    readonly retryAfter: number | null,
  ) {
    super(`${status} ${problem.type}: ${problem.message}`);
    this.name = "LabelwrightError";
  }
}

export class Labelwright {
  constructor(
    private readonly baseUrl = "http://127.0.0.1:8000",
    private readonly timeoutMs = 5000,
    private readonly apiKey: string | null = null,
  ) {}

  predict(request: PredictRequest, requestId?: string): Promise<PredictAnswer> {
    return this.ask<PredictAnswer>("/predict", request, requestId);
  }

  embed(request: EmbedRequest, requestId?: string): Promise<EmbedAnswer> {
    return this.ask<EmbedAnswer>("/embed", request, requestId);
  }

  async models(): Promise<ModelSummary[]> {
    return (await this.ask<ModelList>("/models")).models;
  }

  private async ask<Answer>(path: string, body?: object, requestId?: string): Promise<Answer> {
    const response = await fetch(this.baseUrl + path, {
      method: body === undefined ? "GET" : "POST",
      headers: {
        "content-type": "application/json",
        ...(this.apiKey === null ? {} : { authorization: `Bearer ${this.apiKey}` }),
        ...(requestId === undefined ? {} : { "x-request-id": requestId }),
      },
      body: body === undefined ? null : JSON.stringify(body),
      signal: AbortSignal.timeout(this.timeoutMs),
    });
    const answer: unknown = await response.json();
    if (!response.ok) {
      const told = response.headers.get("retry-after");
      throw new LabelwrightError(
        response.status,
        (answer as ErrorAnswer).error,
        told === null ? null : Number(told),
      );
    }
    return answer as Answer;
  }
}
