// Label many texts: in batches that the service takes, a few at a time, waiting when it is busy, until all are done or
// it is cancelled.

import { patiently, predict, ServiceError } from "./api.js";

const BATCH = 32; // texts in a request: more would make the progress jump
const TOGETHER = 2; // requests at a time: one is computed while the next is on its way
const OVERHEAD = 1024; // bytes of a request beside its texts

/**
 * Label texts. `done(rows, predictions)` is told of every batch; a prediction may be `{ error: { message } }`.
 *
 * Rejects with an AbortError when cancelled, and with a ServiceError when there is no going on.
 */
export async function labelTexts(texts, { settings, limits, signal, done, waiting }) {
  const queue = batches(texts, limits, done);
  const failed = new AbortController(); // when one fails for good, the others need not go on
  const stop = AbortSignal.any([signal, failed.signal]);
  const work = async () => {
    for (let next = queue.next(); !next.done; next = queue.next()) {
      await label(next.value, texts, { settings, signal: stop, done, waiting });
    }
  };
  try {
    await Promise.all(Array.from({ length: TOGETHER }, work));
  } catch (error) {
    failed.abort();
    throw error;
  }
}

/** Label a batch; where the service refuses it as a whole, its halves, down to the row that is to blame. */
async function label(rows, texts, options) {
  const { settings, signal, done, waiting } = options;
  const body = { texts: rows.map((row) => texts[row]), ...settings };
  try {
    const answer = await patiently(() => predict(body, { signal }), { signal, waiting });
    done(rows, answer.predictions);
  } catch (error) {
    if (!(error instanceof ServiceError) || (error.status !== 422 && error.status !== 413)) throw error;
    if (rows.length === 1) {
      done(rows, [{ error: { message: error.message } }]);
      return;
    }
    const half = rows.length >> 1;
    await label(rows.slice(0, half), texts, options);
    await label(rows.slice(half), texts, options);
  }
}

/** Yield batches of row numbers that keep the service's limits; rows that cannot are `done` with an error. */
function* batches(texts, limits, done) {
  const share = Math.floor((limits.max_queue ?? Infinity) / TOGETHER);
  const size = Math.max(1, Math.min(BATCH, limits.texts_per_request ?? BATCH, share));
  const room = (limits.body_bytes ?? 2 ** 20) - OVERHEAD;
  let [batch, bytes] = [[], 0];
  for (let row = 0; row < texts.length; row += 1) {
    const problem = problemOf(texts[row], limits);
    if (problem) {
      done([row], [{ error: { message: problem } }]);
      continue;
    }
    const length = bytesOf(texts[row]);
    if (batch.length && (batch.length === size || bytes + length > room)) {
      yield batch;
      [batch, bytes] = [[], 0];
    }
    batch.push(row);
    bytes += length;
  }
  if (batch.length) yield batch;
}

function problemOf(text, limits) {
  if (text === undefined) return "there is no text";
  if (!text.trim()) return "the text is empty";
  const most = limits.characters_per_text ?? Infinity;
  return text.length > most && [...text].length > most ? `the text is longer than ${most} characters` : null;
}

const encoder = new TextEncoder();

/** Return how many bytes a text has in a request. */
function bytesOf(text) {
  return encoder.encode(JSON.stringify(text)).length + 1;
}
