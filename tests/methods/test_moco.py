"""The queue of MoCo: a ring of the last keys."""

import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from stillmotion.methods.moco import MoCo, MoCoConfig


def random_keys(b, v, m, seed):
    return torch.randn(b, v, m, generator=torch.Generator().manual_seed(seed))


@given(sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6), length=st.integers(1, 14))
def test_the_queue_holds_the_last_keys_oldest_first_from_its_position(sizes, length):
    moco = MoCo(3, MoCoConfig(queue_size=length))
    everything = [moco.queue.clone()]
    for seed, b in enumerate(sizes):
        keys = random_keys(b, 2, 3, seed)
        moco.after_step(keys)
        everything.append(F.normalize(keys.reshape(-1, 3), dim=1))
    expected = torch.cat(everything)[-length:]
    torch.testing.assert_close(moco.queue.roll(-int(moco.queue_position), 0), expected)


def test_a_backward_pass_after_the_commit_sees_the_queue_of_before():
    moco = MoCo(3, MoCoConfig(queue_size=4))
    z, keys = random_keys(2, 2, 3, 0).requires_grad_(), random_keys(2, 2, 3, 1)
    (expected,) = torch.autograd.grad(moco(z, keys), z)
    loss = moco(z, keys)
    moco.after_step(keys)
    (gradient,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(gradient, expected, atol=0, rtol=0)


def test_queue_and_position_are_saved_but_do_not_learn():
    moco = MoCo(3, MoCoConfig(queue_size=4))
    assert set(moco.state_dict()) == {"queue", "queue_position"}
    assert not list(moco.parameters())
    torch.testing.assert_close(moco.queue.norm(dim=1), torch.ones(4))
