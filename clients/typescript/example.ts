// LABELWRIGHT_URL=http://127.0.0.1:8000 node build/example.js
import { Labelwright, LabelwrightError } from "./labelwright.js";

const client = new Labelwright(process.env["LABELWRIGHT_URL"], 5000, process.env["LABELWRIGHT_API_KEY"]);

for (const model of await client.models()) {
  console.log(model.name, model.method, model.input.kind, model.label_count);
}

const answer = await client.predict({ inputs: [{ "0": 1 }, { "1": 1 }], top_k: 1 }, "example-1");
for (const prediction of answer.predictions) {
  // A model of images answers with masks instead.
  if ("labels" in prediction) console.log(prediction.labels.join(), prediction.scores[0]?.toFixed(3));
}
console.log(answer.request_id);

try {
  await client.predict({ inputs: [[1, 2, 3]], model: "no-such-model" });
} catch (error) {
  if (!(error instanceof LabelwrightError)) throw error;
  console.log(error.status, error.problem.type);
}
