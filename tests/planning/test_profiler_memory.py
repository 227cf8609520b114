import torch
from profiler_memory import peak_memory

MIB = 2**20 // 4  # floats


def test_the_peak_is_what_lives_at_the_same_time():
    def in_sequence():
        for _ in range(3):
            torch.zeros(8 * MIB)

    def at_once():
        return [torch.zeros(8 * MIB) for _ in range(3)]

    before = torch.zeros(8 * MIB)
    assert 8 <= peak_memory(in_sequence) < 9
    assert 24 <= peak_memory(at_once) < 25
    assert peak_memory(lambda: before.add_(1)) < 1
