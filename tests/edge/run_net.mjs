// Runs the net of tests/codegen/nets.py, as run_net.c does: prints the outputs, one number to a line.
import { readFileSync } from "node:fs";

const { instance } = await WebAssembly.instantiate(readFileSync(process.argv[2]), {});
const { memory, malloc, rten_aot_create, rten_aot_run, rten_aot_error } = instance.exports;
const TENSOR = 40; // bytes of a DLTensor with pointers of 32 bits

const view = () => new DataView(memory.buffer); // memory that grows gets a new buffer
const check = (code) => {
  if (code === 0) return;
  const bytes = new Uint8Array(memory.buffer, rten_aot_error());
  throw new Error(new TextDecoder().decode(bytes.subarray(0, bytes.indexOf(0))));
};
const copy = (array) => {
  const at = malloc(array.byteLength);
  new Uint8Array(memory.buffer).set(new Uint8Array(array.buffer), at);
  return at;
};
const tensor = (at, array, shape, code) => {
  const data = copy(array), dims = copy(BigInt64Array.from(shape, BigInt)), to = view();
  to.setUint32(at, data, true);
  to.setInt32(at + 4, 1, true); // the CPU
  to.setInt32(at + 12, shape.length, true);
  to.setUint8(at + 16, code);
  to.setUint8(at + 17, 32);
  to.setUint16(at + 18, 1, true);
  to.setUint32(at + 20, dims, true);
};

const inputs = copy(new Uint8Array(2 * TENSOR)), outputs = copy(new Uint8Array(2 * TENSOR));
const image = Float32Array.from({ length: 2 * 3 * 8 * 8 }, (_, i) => (i % 17) / 8 - 1);
tensor(inputs, image, [2, 3, 8, 8], 2);
tensor(inputs + TENSOR, Int32Array.of(3, -1, 0), [3], 0);
const place = malloc(4);
check(rten_aot_create(0, place));
const model = view().getUint32(place, true);
check(rten_aot_run(model, inputs, 2, outputs, 2));
for (let at = outputs; at < outputs + 2 * TENSOR; at += TENSOR) {
  const from = view(), dims = from.getUint32(at + 20, true);
  let count = 1;
  for (let i = 0; i < from.getInt32(at + 12, true); ++i) {
    count *= Number(from.getBigInt64(dims + 8 * i, true));
  }
  const data = from.getUint32(at, true);
  for (let i = 0; i < count; ++i) console.log(from.getFloat32(data + 4 * i, true));
}
