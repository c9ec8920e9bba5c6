"""Products in tensor cores: what a warp multiplies, and in which registers it lies.

The layouts are those of PTX's ``mma.sync.aligned.m16n8k8`` for tf32 and ``m16n8k16`` for fp16
(https://docs.nvidia.com/cuda/parallel-thread-execution, warp-level matrix instructions).
"""

from __future__ import annotations

from dataclasses import dataclass

from rten_aot.targets.cuda.text import Writer

_TF32 = """\
static __device__ __forceinline__ unsigned int rten_tf32(float x) {
#ifdef RTEN_EMULATED
  return emu_to_tf32(x);
#else
  unsigned int bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
#endif
}
"""

_FP16 = """\
static __device__ __forceinline__ unsigned int rten_halves(float first, float second) {
#ifdef RTEN_EMULATED
  return emu_to_f16x2(second, first);
#else
  unsigned int bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(second), "f"(first));
  return bits;
#endif
}
"""

_MULTIPLY = """\
static __device__ __forceinline__ void rten_multiply(
    float *d, const unsigned int *a, const unsigned int *b) {
#ifdef RTEN_EMULATED
  $EMULATED$(d, a, b);
#else
  asm volatile(
      "mma.sync.aligned.$TYPES$ "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}
"""


def _multiply(emulated: str, types: str) -> str:
    return _MULTIPLY.replace("$EMULATED$", emulated).replace("$TYPES$", types)


PREAMBLES = {
    "tf32": _TF32 + _multiply("emu_mma_tf32", "m16n8k8.row.col.f32.tf32.tf32.f32"),
    "fp16": _FP16 + _multiply("emu_mma_f16", "m16n8k16.row.col.f32.f16.f16.f32"),
}
"""What the text begins with besides, by precision."""

_SIDE = 32
"""Rows and columns of the part of a tile that a warp computes."""


@dataclass(frozen=True)
class WarpTiles:
    """A tile of ``rows`` and ``columns`` in squares of 32, one for each warp of a block."""

    rows: int
    columns: int
    depth: int
    precision: str

    def declare(self, writer: Writer) -> None:
        """Append where a warp and a thread in it are, and the sums."""
        across = self.columns // _SIDE
        writer.add(
            "const int group = tid % 32 / 4, place = tid % 4;",
            f"const int warp_row = tid / 32 / {across} * {_SIDE};",
            f"const int warp_col = tid / 32 % {across} * {_SIDE};",
            "float parts[2][4][4];",
            "#pragma unroll",
            "for (int i = 0; i < 32; ++i) parts[i / 16][i / 4 % 4][i % 4] = 0;",
        )

    def multiply(self, writer: Writer) -> None:
        """Append the products of the tiles that are in shared memory."""
        step = 8 if self.precision == "tf32" else 16
        writer.add(
            "#pragma unroll",
            f"for (int k = 0; k < {self.depth}; k += {step}) {{",
            "unsigned int a[2][4], b[4][2];",
            "#pragma unroll",
            "for (int i = 0; i < 2; ++i) {",
            "const int row = warp_row + i * 16 + group;",
            *self._load("a[i]", "rows", ("row", "row + 8", "row", "row + 8"), (0, 0, 1, 1)),
            "}",
            "#pragma unroll",
            "for (int j = 0; j < 4; ++j) {",
            "const int col = warp_col + j * 8 + group;",
            *self._load("b[j]", "cols", ("col", "col"), (0, 1)),
            "}",
            "#pragma unroll",
            "for (int i = 0; i < 2; ++i)",
            "#pragma unroll",
            "for (int j = 0; j < 4; ++j) rten_multiply(parts[i][j], a[i], b[j]);",
            "}",
        )

    def _load(
        self, target: str, source: str, places: tuple[str, ...], halves: tuple[int, ...]
    ) -> list[str]:
        """The registers of one factor: ``halves`` say which half of the terms each is of."""
        lines = []
        for number, (place, half) in enumerate(zip(places, halves, strict=True)):
            if self.precision == "tf32":
                value = f"rten_tf32({source}[half][k + {4 * half} + place][{place}])"
            else:
                first = f"{source}[half][k + {8 * half} + 2 * place][{place}]"
                second = f"{source}[half][k + {8 * half} + 2 * place + 1][{place}]"
                value = f"rten_halves({first}, {second})"
            lines.append(f"{target}[{number}] = {value};")
        return lines

    def gather(self, writer: Writer, sums: str) -> None:
        """Append what brings the sums to the threads that store them, as ``sums`` reads them."""
        writer.add(
            f"__shared__ __align__(16) float results[{self.rows}][{self.columns + 4}];",
            "#pragma unroll",
            "for (int i = 0; i < 32; ++i) {",
            "const int row = warp_row + i / 16 * 16 + i / 2 % 2 * 8 + group;",
            "const int col = warp_col + i / 4 % 4 * 8 + place * 2 + i % 2;",
            "results[row][col] = parts[i / 16][i / 4 % 4][i % 4];",
            "}",
            "__syncthreads();",
            sums,
        )
