"""What is read from the text of a GPU program, by a small one."""

from collections import Counter

from tests.gpu.predict import time_of
from tests.gpu.program import WARP, read_graphs, read_program, size_of

HLO = """HloModule jit_f

%fused_slice (p: f32[8,100]) -> f32[8,10] {
  %p = f32[8,100]{1,0} parameter(0)
  ROOT %slice.1 = f32[8,10]{1,0} slice(%p), slice={[0:8], [0:10]}
}

%fused_rows (p.2: f32[8,100]) -> f32[8,2] {
  %p.2 = f32[8,100]{1,0} parameter(0)
  %slice.2 = f32[8,50]{1,0} slice(%p.2), slice={[0:8], [0:50]}
  ROOT %slice.3 = f32[8,2]{1,0} slice(%slice.2), slice={[0:8], [0:2]}
}

%fused_add (p.1: f32[8,10], p.2: f32[8,10]) -> (f32[8,10], f32[8]) {
  %p.1 = f32[8,10]{1,0} parameter(0)
  %p.2 = f32[8,10]{1,0} parameter(1)
  %add = f32[8,10]{1,0} add(%p.1, %p.2)
  %sum = f32[8]{0} reduce(%add, %p.2), dimensions={1}
  ROOT %both = (f32[8,10]{1,0}, /*index=1*/f32[8]{0}) tuple(%add, %sum)
}

%body (s: (s32[], f32[8,10])) -> (s32[], f32[8,10]) {
  %s = (s32[], f32[8,10]{1,0}) parameter(0)
  %x = f32[8,10]{1,0} get-tuple-element(%s), index=1
  %potrf = f32[8,10]{1,0} custom-call(%x), custom_call_target="cusolver_potrf_ffi"
  ROOT %out = (s32[], f32[8,10]{1,0}) tuple(%s, %potrf)
}

%test (s.1: (s32[], f32[8,10])) -> pred[] {
  %s.1 = (s32[], f32[8,10]{1,0}) parameter(0)
  ROOT %more = pred[] fusion(%s.1), kind=kLoop, calls=%fused_slice
}

ENTRY %main (a: f32[8,100]) -> f32[8,10] {
  %a = f32[8,100]{1,0} parameter(0)
  %loop_slice_fusion = f32[8,10]{1,0} fusion(%a), kind=kLoop, calls=%fused_slice
  %loop_rows_fusion = f32[8,2]{1,0} fusion(%a), kind=kLoop, calls=%fused_rows
  %loop_add_fusion = (f32[8,10]{1,0}, f32[8]{0}) fusion(%loop_slice_fusion, %loop_slice_fusion), kind=kLoop, calls=%fused_add
  %while.1 = (s32[], f32[8,10]{1,0}) while(%loop_add_fusion), condition=%test, body=%body
  %while.2 = (s32[], f32[8,10]{1,0}) while(%while.1), condition=%test, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  %call.7 = f32[8,10]{1,0} custom-call(%while.2), custom_call_target="__gpu$xla.gpu.ptx", backend_config={block_x = 64 : i32, grid_x = 3 : i32, kernel_data = ".reg .f32 %f<9>;\\0Amov.u32 %r1, 0;\\0Aloop_1:\\0Aadd.f32 %f1, %f1, %f1;\\0Asetp.lt.u32 %p1, %r1, 4;\\0A@%p1 bra.uni loop_1;\\0Aagain_2:\\0A@!%p2 bra.uni end_2;\\0Abra.uni again_2;\\0Aend_2:\\0Aret;\\0A", name = "loop"}
  ROOT %empty = f32[8,0]{1,0} copy(%call.7)
}
"""  # noqa: E501

LAUNCHES = """000: kCommandBuffer [source | sink]
    001: kCustomKernel [source       | next=002 (1)] loop_slice_fusion grid: [1, 1, 1] threads: [1, 1, 1]
    002: kWhile        [prev=001 (1) | sink        ]
condition:
        003: kCustomKernel [source       | sink] more grid: [1, 1, 1] threads: [1, 1, 1]
003: kWhile        [prev=002 (1) | sink        ]
  body:
    004: kCustomCall [source       | sink] potrf
"""


def test_kernels_bytes_and_loops() -> None:
    program = read_program(HLO, trips=(3.0,))
    times: Counter[str] = Counter()
    for kernel in program.kernels:
        times[kernel.name] += kernel.times
    # a dynamic loop is tested once more than it runs; a copy of nothing is no launch
    assert times == {
        "loop_slice_fusion": 1,
        "loop_rows_fusion": 1,
        "loop_add_fusion": 1,
        "potrf": 3 + 5,
        "more": 4,
        "call.7": 1,
    }
    bytes_of = {kernel.name: kernel.bytes for kernel in program.kernels}
    # of a slice only what is taken; of two parameters and two results all
    assert bytes_of["loop_slice_fusion"] == 2 * 320
    assert bytes_of["loop_rows_fusion"] == 2 * 64
    assert bytes_of["loop_add_fusion"] == 3 * 320 + 32
    assert [(loop.trips, loop.is_dynamic) for loop in program.loops] == [(3, True), (5, False)]
    assert {kernel.name for kernel in program.kernels if kernel.is_library} == {"potrf"}
    assert {kernel.name for kernel in program.kernels if kernel.kind == WARP} == {"call.7"}


def test_graphs() -> None:
    graphs = read_graphs(LAUNCHES)
    assert graphs.graphs == 1
    assert graphs.inside == {"loop_slice_fusion", "more"}
    assert (graphs.outside, graphs.host_loops) == (1, 1)


def test_sizes() -> None:
    assert size_of("(f32[8,10]{1,0}, pred[3]{0}, s32[])") == 320 + 3 + 4


def test_instructions_of_warps_are_counted_with_their_loops() -> None:
    counts = [sum(k.instructions for k in read_program(HLO, iterations=n).kernels) for n in (1.0, 5.0)]
    # of six warps: one before and one after, four times three, and two in each iteration
    assert counts == [6 * (2 + 4 * 3 + 2 * n) for n in (1, 5)]


def test_time_grows_with_what_is_launched() -> None:
    graphs = read_graphs(LAUNCHES)
    times = [time_of(read_program(HLO, trips=(count,)), graphs) for count in (1.0, 2.0)]
    assert 0 < times[0] < times[1]
