"""Parameter names and shapes of public checkpoints, taken from their definitions and not from our modules.

Each function returns {name: shape} of the network's state dict without classifier and counters.
"""

Shapes = dict[str, tuple[int, ...]]


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.{field}": (width,) for field in ("weight", "bias", "running_mean", "running_var")}


def torchvision_resnet(conv_kinds: tuple[str, ...]) -> Shapes:
    """torchvision's r3d_18, mc3_18 and r2plus1d_18."""
    if conv_kinds[0] == "2+1d":
        names: Shapes = {"stem.0.weight": (45, 3, 1, 7, 7), "stem.3.weight": (64, 45, 3, 1, 1)}
        names |= _norm("stem.1", 45) | _norm("stem.4", 64)
    else:
        names = {"stem.0.weight": (64, 3, 3, 7, 7)} | _norm("stem.1", 64)
    inner = 64
    for layer, (outer, kind) in enumerate(zip((64, 128, 256, 512), conv_kinds, strict=True), start=1):
        for block in range(2):
            middle = (inner * outer * 27) // (inner * 9 + 3 * outer)
            for conv, width in (("conv1", inner), ("conv2", outer)):
                at = f"layer{layer}.{block}.{conv}"
                if kind == "2+1d":
                    names |= {f"{at}.0.0.weight": (middle, width, 1, 3, 3)} | _norm(f"{at}.0.1", middle)
                    names |= {f"{at}.0.3.weight": (outer, middle, 3, 1, 1)}
                else:
                    names |= {f"{at}.0.weight": (outer, width, 3 if kind == "3d" else 1, 3, 3)}
                names |= _norm(f"{at}.1", outer)
            if inner != outer:
                at = f"layer{layer}.{block}.downsample"
                names |= {f"{at}.0.weight": (outer, inner, 1, 1, 1)} | _norm(f"{at}.1", outer)
            inner = outer
    return names


def torchvision_s3d(*, gated: bool = False) -> Shapes:
    """torchvision's s3d, optionally with the gates of CoCLR's S3D-G under their names there."""
    names: Shapes = {}

    def unit(at: str, inner: int, outer: int, kernel: tuple[int, int, int] = (1, 1, 1)) -> None:
        names.update({f"{at}.0.weight": (outer, inner, *kernel)} | _norm(f"{at}.1", outer))

    def separable(at: str, inner: int, outer: int, k: int) -> None:
        unit(f"{at}.0", inner, outer, (1, k, k))
        unit(f"{at}.1", outer, outer, (k, 1, 1))

    separable("features.0", 3, 64, 7)
    unit("features.2", 64, 64)
    separable("features.3", 64, 192, 3)
    for index, inner, b0, m1, b1, m2, b2, b3 in (
        (5, 192, 64, 96, 128, 16, 32, 32),
        (6, 256, 128, 128, 192, 32, 96, 64),
        (8, 480, 192, 96, 208, 16, 48, 64),
        (9, 512, 160, 112, 224, 24, 64, 64),
        (10, 512, 128, 128, 256, 24, 64, 64),
        (11, 512, 112, 144, 288, 32, 64, 64),
        (12, 528, 256, 160, 320, 32, 128, 128),
        (14, 832, 256, 160, 320, 32, 128, 128),
        (15, 832, 384, 192, 384, 48, 128, 128),
    ):
        at = f"features.{index}"
        unit(f"{at}.branch0", inner, b0)
        unit(f"{at}.branch1.0", inner, m1)
        separable(f"{at}.branch1.1", m1, b1, 3)
        unit(f"{at}.branch2.0", inner, m2)
        separable(f"{at}.branch2.1", m2, b2, 3)
        unit(f"{at}.branch3.1", inner, b3)
        for branch, width in enumerate((b0, b1, b2, b3) if gated else ()):
            names[f"{at}.gating_b{branch}.fc.weight"] = (width, width)
            names[f"{at}.gating_b{branch}.fc.bias"] = (width,)
    return names


def _slow(stem: tuple[str, str], block: str, first_stage: int, parts: dict[str, str]) -> Shapes:
    names = {f"{stem[0]}.weight": (64, 3, 1, 7, 7)} | _norm(stem[1], 64)
    inner = 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        middle, outer, time = 64 * 2**stage, 256 * 2**stage, 1 if stage < 2 else 3
        for index in range(depth):
            at = block.format(stage=stage + first_stage, block=index)
            names |= {f"{at}.{parts['a']}.weight": (middle, inner, time, 1, 1)} | _norm(f"{at}.{parts['a_bn']}", middle)
            names |= {f"{at}.{parts['b']}.weight": (middle, middle, 1, 3, 3)} | _norm(f"{at}.{parts['b_bn']}", middle)
            names |= {f"{at}.{parts['c']}.weight": (outer, middle, 1, 1, 1)} | _norm(f"{at}.{parts['c_bn']}", outer)
            if index == 0:
                names |= {f"{at}.{parts['1']}.weight": (outer, inner, 1, 1, 1)} | _norm(f"{at}.{parts['1_bn']}", outer)
            inner = outer
    return names


def slowfast_slow_r50() -> Shapes:
    """SlowFast's model zoo."""
    parts = {key: f"branch2.{key}" for key in ("a", "a_bn", "b", "b_bn", "c", "c_bn")}
    parts |= {"1": "branch1", "1_bn": "branch1_bn"}
    stem = ("s1.pathway0_stem.conv", "s1.pathway0_stem.bn")
    return _slow(stem, "s{stage}.pathway0_res{block}", 2, parts)


def pytorchvideo_slow_r50() -> Shapes:
    """PyTorchVideo's hub."""
    parts = {letter: f"branch2.conv_{letter}" for letter in "abc"}
    parts |= {f"{letter}_bn": f"branch2.norm_{letter}" for letter in "abc"}
    parts |= {"1": "branch1_conv", "1_bn": "branch1_norm"}
    return _slow(("blocks.0.conv", "blocks.0.norm"), "blocks.{stage}.res_blocks.{block}", 1, parts)


def c3d() -> Shapes:
    """The public conversions of C3D, convolutions only."""
    widths = {"1": (3, 64), "2": (64, 128), "3a": (128, 256), "3b": (256, 256), "4a": (256, 512)}
    widths |= dict.fromkeys(("4b", "5a", "5b"), (512, 512))
    names: Shapes = {}
    for name, (inner, outer) in widths.items():
        names |= {f"conv{name}.weight": (outer, inner, 3, 3, 3), f"conv{name}.bias": (outer,)}
    return names


def inception_i3d() -> Shapes:
    """The common PyTorch InceptionI3d, RGB."""
    names: Shapes = {}

    def unit(name: str, inner: int, outer: int, kernel: int) -> None:
        names.update({f"{name}.conv3d.weight": (outer, inner, kernel, kernel, kernel)} | _norm(f"{name}.bn", outer))

    unit("Conv3d_1a_7x7", 3, 64, 7)
    unit("Conv3d_2b_1x1", 64, 64, 1)
    unit("Conv3d_2c_3x3", 64, 192, 3)
    blocks = {
        "3b": (192, 64, 96, 128, 16, 32, 32),
        "3c": (256, 128, 128, 192, 32, 96, 64),
        "4b": (480, 192, 96, 208, 16, 48, 64),
        "4c": (512, 160, 112, 224, 24, 64, 64),
        "4d": (512, 128, 128, 256, 24, 64, 64),
        "4e": (512, 112, 144, 288, 32, 64, 64),
        "4f": (528, 256, 160, 320, 32, 128, 128),
        "5b": (832, 256, 160, 320, 32, 128, 128),
        "5c": (832, 384, 192, 384, 48, 128, 128),
    }
    for block, (inner, b0, b1a, b1b, b2a, b2b, b3b) in blocks.items():
        at = f"Mixed_{block}"
        unit(f"{at}.b0", inner, b0, 1)
        unit(f"{at}.b1a", inner, b1a, 1)
        unit(f"{at}.b1b", b1a, b1b, 3)
        unit(f"{at}.b2a", inner, b2a, 1)
        unit(f"{at}.b2b", b2a, b2b, 3)
        unit(f"{at}.b3b", inner, b3b, 1)
    return names


def videomae(*, width: int = 768, depth: int = 12, patch: int = 16) -> Shapes:
    """The encoder of a pre-trained VideoMAE."""
    names: Shapes = {
        "patch_embed.proj.weight": (width, 3, 2, patch, patch),
        "patch_embed.proj.bias": (width,),
    }
    for index in range(depth):
        at = f"blocks.{index}"
        for norm in ("norm1", "norm2"):
            names |= {f"{at}.{norm}.weight": (width,), f"{at}.{norm}.bias": (width,)}
        names |= {f"{at}.attn.q_bias": (width,), f"{at}.attn.v_bias": (width,)}
        names |= {f"{at}.attn.qkv.weight": (3 * width, width)}
        for name, outer, inner in (("attn.proj", 1, 1), ("mlp.fc1", 4, 1), ("mlp.fc2", 1, 4)):
            names |= {
                f"{at}.{name}.weight": (outer * width, inner * width),
                f"{at}.{name}.bias": (outer * width,),
            }
    return names | {"norm.weight": (width,), "norm.bias": (width,)}
