"""Model configurations and their presets.

Macaron halves the inner size of each of its two feed-forwards, so a Macaron preset and its baseline
have equal parameter counts up to one norm and one bias a layer (Lu et al. 2019, section 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from training.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Sizes of an encoder-decoder Transformer."""

    block: str = "standard"
    """`standard`, `macaron`, or `package.module:name` of a pair (encoder layer, decoder layer)."""
    model_dim: int = 256
    num_heads: int = 4
    ffn_dim: int = 1024
    """Inner size of one feed-forward; a Macaron layer has two."""
    num_encoder_layers: int = 3
    num_decoder_layers: int = 3
    vocab_size: int = 8000
    """Rows of the one embedding that source, target and output share."""
    norm: str = "pre"
    """`pre`: normalise each sublayer's input, and once at the end; `post`: after each residual."""
    dropout: float = 0.1
    """After embeddings and each sublayer."""
    attention_dropout: float = 0.0
    """On attention probabilities."""
    activation_dropout: float = 0.0
    """Inside the feed-forward, after ReLU."""

    def __post_init__(self) -> None:
        for name in (
            "num_heads",
            "ffn_dim",
            "num_encoder_layers",
            "num_decoder_layers",
            "vocab_size",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be >= 1, got {getattr(self, name)}")
        # Sinusoids need two frequencies at least.
        if self.model_dim < 4 or self.model_dim % (2 * self.num_heads):
            raise ConfigError(
                f"model_dim must be >= 4 and a multiple of 2 * num_heads = {2 * self.num_heads}, "
                f"got {self.model_dim}"
            )
        if self.norm not in ("pre", "post"):
            raise ConfigError(f"norm must be 'pre' or 'post', got {self.norm!r}")
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(f"{name} must be in [0, 1), got {getattr(self, name)}")

    @property
    def family(self) -> str:
        """The manifest's family."""
        return "macaron" if self.block == "macaron" else "transformer"


def _macaron(baseline: TransformerConfig) -> TransformerConfig:
    return replace(baseline, block="macaron", ffn_dim=baseline.ffn_dim // 2)


_SMALL = TransformerConfig()
_TINY = replace(_SMALL, model_dim=128, ffn_dim=512, vocab_size=4000)
_IWSLT_SMALL = TransformerConfig(
    model_dim=512,
    num_heads=4,
    ffn_dim=1024,
    num_encoder_layers=6,
    num_decoder_layers=6,
    vocab_size=10000,
    dropout=0.3,
    attention_dropout=0.1,
    activation_dropout=0.1,
)
_BASE = replace(
    _IWSLT_SMALL, num_heads=8, ffn_dim=2048, vocab_size=32768, dropout=0.1, activation_dropout=0.1
)
_BIG = replace(_BASE, model_dim=1024, num_heads=16, ffn_dim=4096, dropout=0.3)

PRESETS: dict[str, TransformerConfig] = {
    f"{family}_{size}": convert(baseline)
    for family, convert in (("transformer", lambda c: c), ("macaron", _macaron))
    for size, baseline in (
        ("tiny", _TINY),
        ("small", _SMALL),
        ("iwslt_small", _IWSLT_SMALL),
        ("base", _BASE),
        ("big", _BIG),
    )
}
"""`iwslt_small`, `base`, `big`: sizes of the Macaron authors' runs; the others: small machines."""
