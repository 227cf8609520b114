from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.sliding_texture import sliding_frames
from torch.nn import functional as F

from stillmotion.data.video.optical_flow import FLOW_NAMES, load_flow
from stillmotion.errors import StillmotionError, VideoError
from stillmotion.models import raft as flows
from stillmotion.models.raft import RAFT


@pytest.mark.parametrize("name", [name for name in FLOW_NAMES if name.startswith("dis")])
@pytest.mark.parametrize("step", [(2.0, -1.0), (0.5, 0.25)])
def test_dis_finds_a_known_shift(name: str, step: tuple[float, float]) -> None:
    fields = list(load_flow(name)(sliding_frames(step, num_frames=4)))
    assert [(field.shape, field.dtype) for field in fields] == [((64, 80, 2), np.float32)] * 3
    inner = np.stack(fields)[:, 12:-12, 12:-12]
    assert np.hypot(*(inner - step).transpose(3, 0, 1, 2)).mean() < 0.3


@pytest.mark.parametrize(("batch", "room"), [(2, 2**30), (8, 1)])
def test_raft_pads_odd_frames_and_works_in_batches_that_have_room(
    batch: int, room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    network = RAFT("raft-small").eval()
    save_file(network.state_dict(), tmp_path / "raft.safetensors")
    monkeypatch.setattr(flows, "_BATCH_SIZE", batch)
    monkeypatch.setattr(flows, "_MAX_CORRELATION_BYTES", room)
    frames = sliding_frames((1, 0), num_frames=4, frame_size=(51, 130))
    fields = list(load_flow("raft-small", weights=tmp_path / "raft.safetensors")(iter(frames)))
    assert [field.shape for field in fields] == [(51, 130, 2)] * 3
    images = torch.from_numpy(frames[2:]).permute(0, 3, 1, 2).float() / 127.5 - 1
    images = F.pad(images, (3, 3, 38, 39), mode="replicate")
    with torch.inference_mode():
        single = network(images)[0, :, 38:89, 3:133].permute(1, 2, 0).numpy()
    assert np.abs(fields[2] - single).max() < 1e-3 * np.abs(single).max()


def test_a_single_frame_has_no_flow() -> None:
    assert list(load_flow("dis-fast")(sliding_frames((1, 0), num_frames=1))) == []


def test_frames_too_small_for_dis_are_an_error_and_not_a_crash() -> None:
    with pytest.raises(VideoError, match="frames are 80×31; DIS optical flow needs at least 32 per side"):
        list(load_flow("dis-fast")(sliding_frames((1, 0), num_frames=2, frame_size=(31, 80))))


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("lucas", None, "must be one of dis-ultrafast"),
        ("raft-large", None, "needs weights. Give a checkpoint by --flow-weights"),
        ("dis-fast", "raft.pth", "takes no weights"),
        ("raft-large", "nowhere.pth", "nowhere.pth does not exist"),
    ],
)
def test_what_cannot_be_opened_says_what_to_do(name: str, weights: str | None, message: str) -> None:
    with pytest.raises(StillmotionError, match=message):
        load_flow(name, weights=weights)


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    save_file(RAFT("raft-small").state_dict(), tmp_path / "small.safetensors")
    with pytest.raises(StillmotionError, match="does not match RAFT"):
        load_flow("raft-large", weights=tmp_path / "small.safetensors")
