"""A ResNet's shape (He et al. 2016; v1.5 strides): its convolutions as matrix products, its parameters and flops."""

from __future__ import annotations

from dataclasses import dataclass

STAGE_WIDTHS = (64, 128, 256, 512)
DEPTHS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
EXPANSION = 4


@dataclass(frozen=True)
class Conv:
    """One convolution; as a product: rows = samples * side^2, columns = outside, inner = inside * kernel^2."""

    side: int
    inside: int
    outside: int
    kernel: int
    groups: int = 1
    stride: int = 1

    @property
    def inner(self) -> int:
        """Length of one dot product."""
        return self.inside // self.groups * self.kernel**2

    @property
    def params(self) -> int:
        """Weights, and scale and shift of the normalisation that follows."""
        return self.inner * self.outside + 2 * self.outside

    @property
    def flops(self) -> float:
        """Forward flops of one image."""
        return 2.0 * self.side**2 * self.outside * self.inner


@dataclass(frozen=True)
class ConvNet:
    """A ResNet of bottleneck blocks.

    Args:
        depth: 50, 101 or 152.
        image: pixels on one side.
        groups, group_width: 32 and 4 for ResNeXt 32x4d.
    """

    name: str
    depth: int
    image: int = 224
    classes: int = 1000
    groups: int = 1
    group_width: int = 64

    @property
    def convs(self) -> tuple[Conv, ...]:
        """All convolutions in order."""
        side = self.image // 4
        found = [Conv(self.image // 2, 3, 64, 7, stride=2)]
        inside = 64
        for stage, (blocks, width) in enumerate(zip(DEPTHS[self.depth], STAGE_WIDTHS, strict=True)):
            middle = width * self.group_width * self.groups // 64
            for block in range(blocks):
                before = side
                side = side // 2 if block == 0 and stage else side
                found.append(Conv(before, inside, middle, 1))
                found.append(Conv(side, middle, middle, 3, self.groups, before // side))
                found.append(Conv(side, middle, width * EXPANSION, 1))
                if block == 0:
                    found.append(Conv(side, inside, width * EXPANSION, 1, stride=before // side))
                inside = width * EXPANSION
        return tuple(found)

    def params(self) -> int:
        """All parameters."""
        width = STAGE_WIDTHS[-1] * EXPANSION
        return sum(conv.params for conv in self.convs) + width * self.classes + self.classes

    def forward_flops(self, images: int) -> float:
        """Flops of a forward pass."""
        return images * sum(conv.flops for conv in self.convs)

    @property
    def activation_values(self) -> int:
        """Values of one image that all layers put out, before and after their normalisation."""
        return sum(2 * conv.side**2 * conv.outside for conv in self.convs)
