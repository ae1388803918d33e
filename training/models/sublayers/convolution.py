"""Lightweight and dynamic convolutions in place of self-attention.

Wu et al. 2019, "Pay Less Attention with Lightweight and Dynamic Convolutions". Shape letters: B
sentences, S source positions, T tokens, Q queries, D model, H heads, E head, K kernel width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.models.configs.transformer import TransformerConfig
from training.models.context import CacheContext, StepNeeds
from training.models.dropout import Dropout
from training.models.sublayers.attention import init_linear


class Convolution(nn.Module):
    """Linear, GLU if configured, a convolution along the positions, Linear (section 3).

    The kernel is depthwise, shared by the features of each of H heads, and softmax-normalised over
    its width. It is learnt (`light_conv`, equation 4) or a linear function of each position's input
    (`dynamic_conv`, section 4). `kernel_dropout` drops taps after the softmax (DropConnect). As in
    the authors' code the softmax runs over the whole width at the edges too, where the missing
    inputs are zeros. Without `kernel_softmax` the taps are not normalised.
    """

    def __init__(self, config: TransformerConfig, mixing: str, width: int) -> None:
        """A kernel of `width` taps; `mixing` is `light_conv` or `dynamic_conv`."""
        super().__init__()
        dim, self.heads, self.width = config.model_dim, config.num_heads, width
        self.needs = StepNeeds(states=(dim,), ancestors=width - 1)
        self.has_gate, self.kernel_dropout = config.conv_glu, config.kernel_dropout
        self.kernel_softmax = config.kernel_softmax
        self.input_dropout = Dropout(config.conv_input_dropout)
        self.in_proj = nn.Linear(dim, 2 * dim if self.has_gate else dim)
        self.out_proj = nn.Linear(dim, dim)
        init_linear(self.in_proj, self.out_proj)
        self.kernel_proj: nn.Linear | None = None
        if mixing == "dynamic_conv":
            self.kernel_proj = nn.Linear(dim, self.heads * width, bias=False)
            init_linear(self.kernel_proj)
        else:
            self.kernel = nn.Parameter(torch.empty(self.heads, width))
            nn.init.xavier_uniform_(self.kernel)

    def forward(self, x_BSD: Tensor, mask: Tensor | None = None) -> Tensor:
        """Centred convolution of an encoder; positions that the additive mask [B,1,1 or S,S] hides
        count as zeros."""
        x_BSD = self._project(x_BSD)
        kernel = self.taps(x_BSD)
        if mask is not None:
            x_BSD = x_BSD.masked_fill((mask[:, 0, 0] < 0).unsqueeze(-1), 0.0)
        return self.out_proj(convolve(x_BSD, kernel, ahead=self.width // 2))

    def decode(self, x_BQD: Tensor, context: CacheContext) -> Tensor:
        """Causal convolution of a decoder; keeps its inputs in a cache if there is one."""
        x_BQD = self._project(x_BQD)
        kernel = self.taps(x_BQD)
        if context.cached:
            return self.out_proj(context.convolve(x_BQD, kernel))
        return self.out_proj(convolve(x_BQD, kernel, ahead=0))

    def _project(self, x: Tensor) -> Tensor:
        x = self.in_proj(self.input_dropout(x))
        return nn.functional.glu(x, -1) if self.has_gate else x

    def taps(self, x_BTD: Tensor) -> Tensor:
        """The taps [B,T,H,K], or [1,1,H,K] if all positions have the same."""
        if self.kernel_proj is None:
            logits = self.kernel[None, None]
        else:
            logits = self.kernel_proj(x_BTD).unflatten(-1, (self.heads, self.width))
        taps = logits.float().softmax(-1).to(x_BTD.dtype) if self.kernel_softmax else logits
        return nn.functional.dropout(taps, self.kernel_dropout, self.training)


def convolve(x_BTD: Tensor, kernel: Tensor, *, ahead: int) -> Tensor:
    """Each position's sum of its taps times the positions from `ahead` after it on, backwards.

    `kernel` is [B,T,H,K] or [1,1,H,K]; tap j meets position t + ahead - j. The taps are put into a
    band of a matrix [T,T], which multiplies the features of a head, as the authors' code does.
    """
    length, (heads, width) = x_BTD.shape[1], kernel.shape[2:]
    place_T = torch.arange(length, device=x_BTD.device)
    tap_TT = place_T[:, None] - place_T + ahead
    kernel_BHTK = kernel.transpose(1, 2).expand(-1, -1, length, -1)
    index = tap_TT.clamp(0, width - 1).expand(*kernel_BHTK.shape[:2], -1, -1)
    outside_TT = (tap_TT < 0) | (tap_TT >= width)
    band_BHTT = kernel_BHTK.gather(3, index).masked_fill(outside_TT, 0.0)
    x_BHTE = x_BTD.unflatten(-1, (heads, -1)).transpose(1, 2)
    return (band_BHTT @ x_BHTE).transpose(1, 2).flatten(2)
