"""What is read from the text of a TPU program, by a small one."""

from tests.tpu.program import HBM, VMEM, arrays_of, read_program

MIB = 1 << 20
HLO = """HloModule jit_f, is_scheduled=true

FileNames
1 "/user/script.py"
2 "/home/diffsim/kinematics/poses.py"
3 "/home/diffsim/xla/gather.py"

FunctionNames
1 "main"

FileLocations
1 {file_name_id=1 function_name_id=1 line=5 end_line=5 column=1 end_column=2}
2 {file_name_id=2 function_name_id=1 line=133 end_line=133 column=1 end_column=2}
3 {file_name_id=3 function_name_id=1 line=49 end_line=49 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=3 parent_frame_id=3}

%fused_pick (p: f32[4096,26,3,3]) -> f32[4096,26,3,3] {
  %p = f32[4096,26,3,3]{0,1,3,2:T(8,128)S(1)} parameter(0)
  ROOT %gather.1 = f32[4096,26,3,3]{3,2,1,0:T(4,128)} gather(%p, %p), offset_dims={1}
}

%body (s: (s32[], f32[4096,26,3,3])) -> (s32[], f32[4096,26,3,3]) {
  %s = (s32[]{:T(128)}, f32[4096,26,3,3]{0,1,3,2:T(8,128)S(1)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%s), index=0
  %x = f32[4096,26,3,3]{0,1,3,2:T(8,128)S(1)} get-tuple-element(%s), index=1
  %fusion.1 = f32[4096,26,3,3]{0,1,3,2:T(8,128)S(1)} fusion(%x), kind=kLoop, calls=%fused_pick, metadata={op_name="jit(f)/gather" stack_frame_id=3}
  ROOT %out = (s32[]{:T(128)}, f32[4096,26,3,3]{0,1,3,2:T(8,128)S(1)}) tuple(%i, %fusion.1)
}

%test (s.1: (s32[], f32[4096,26,3,3])) -> pred[] {
  %s.1 = (s32[]{:T(128)}, f32[4096,26,3,3]{0,1,3,2:T(8,128)S(1)}) parameter(0)
  ROOT %more = pred[]{:T(512)} constant(true)
}

ENTRY %main (a: f32[4096,26,3,3]) -> f32[4096,26,3,3] {
  %a = f32[4096,26,3,3]{0,1,3,2:T(8,128)} parameter(0)
  %copy-start = (f32[4096,26,3,3]{0,1,3,2:T(8,128)S(1)}, f32[4096,26,3,3]{0,1,3,2:T(8,128)}, u32[]{:S(2)}) copy-start(%a)
  %copy-done = f32[4096,26,3,3]{0,1,3,2:T(8,128)S(1)} copy-done(%copy-start)
  %zero = s32[]{:T(128)} constant(0)
  %start = (s32[]{:T(128)}, f32[4096,26,3,3]{0,1,3,2:T(8,128)S(1)}) tuple(%zero, %copy-done)
  %while.1 = (s32[]{:T(128)}, f32[4096,26,3,3]{0,1,3,2:T(8,128)S(1)}) while(%start), condition=%test, body=%body
  ROOT %end = f32[4096,26,3,3]{0,1,3,2:T(8,128)S(1)} get-tuple-element(%while.1), index=1
}
"""  # noqa: E501


def test_tiles_pad_the_last_two_axes_of_the_layout() -> None:
    (worlds_first,) = arrays_of("f32[4096,26,3,3]{3,2,1,0:T(8,128)}")
    assert worlds_first.bytes == 4 * 4096 * 26 * 9
    assert worlds_first.padded == 4 * 4096 * 26 * 8 * 128
    (in_lanes,) = arrays_of("f32[4096,26,3,3]{0,1,3,2:T(8,128)S(1)}")
    assert in_lanes.padded == 4 * 4096 * 32 * 9
    assert (worlds_first.space, in_lanes.space) == (HBM, VMEM)
    line, truths = arrays_of("(f32[5]{0:T(1024)}, /*index=1*/pred[4096]{0:T(1024)(128)(4,1)})")
    assert (line.padded, truths.padded) == (4096, 4096)


def test_bytes_counts_and_lines() -> None:
    program = read_program(HLO)
    assert program.operations["fusion"] == program.operations["gather"] == program.operations["while"] == 1
    array, rows = 4.5 * MIB, 4096 * 26 * 4 * 128 * 4
    copied, fused = program.written
    # from main memory into the chip's; the semaphore has 4 bytes
    assert (copied.name, copied.moved, copied.hbm) == ("copy-done", 2 * array + 4, array + 4)
    assert (fused.moved, fused.hbm, fused.padded) == (2 * array + rows, 0, array)
    # the line that picks, not the one that has the gather
    assert program.by_line()[0] == ("kinematics/poses.py:133", fused.moved)
    assert program.padding == 4 * 32 * 9 * 4096 / (4 * 26 * 9 * 4096)
