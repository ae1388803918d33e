"""What the configurations of all architectures have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

from training.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ABC):
    """What the configurations of all architectures have in common."""

    least_encoder_layers: ClassVar[int] = 1
    least_decoder_layers: ClassVar[int] = 1
    choices: ClassVar[dict[str, tuple[str, ...] | tuple[int, ...]]] = {
        "norm": ("pre", "post"),
        "norm_type": ("layer", "rms", "scale"),
        "activation": (
            "relu",
            "gelu",
            "gelu_tanh",
            "silu",
            "reglu",
            "geglu",
            "swiglu",
            "geglu_tanh",
        ),
        "attention_init": ("xavier", "small"),
        "embedding_scale": ("token", "sum", "none"),
        "ffn_hidden_layers": (1, 2),
        "head_dropout_schedule": ("constant", "v"),
        "positions": ("sinusoid", "relative", "rotary"),
    }
    """What the fields may be that choose by a name."""
    decoding_budget: ClassVar[int] = 8192
    """Beams x `batch_cost` of a batch that is decoded: a few hundred short sentences."""

    architecture: str
    """Which kind of model it is: a key of `architectures.ARCHITECTURES`."""
    model_dim: int = 256
    num_heads: int = 4
    ffn_dim: int = 1024
    """Inner size of one feed-forward; layers of Macaron and joint models have two."""
    activation: str = "relu"
    """Of the feed-forward: `relu`, `gelu`, `gelu_tanh` (GELU by tanh, nearly), `silu`, or gated
    `reglu`, `geglu`, `geglu_tanh`, `swiglu`, which have three matrices of `ffn_dim` each: two
    thirds of it keep the number of parameters."""
    ffn_hidden_layers: int = 1
    """Of the feed-forward, each of `ffn_dim`: 1, or 2, with an activation behind each and no
    residual inside (the ablation of Lu et al. 2019)."""
    num_encoder_layers: int = 3
    num_decoder_layers: int = 3
    vocab_size: int = 8000
    """Pieces of the vocabulary that source and target share."""
    norm: str = "pre"
    """`pre`: normalise each sublayer's input, and once at the end; `post`: after each residual;
    encoder-decoders also `sandwich`: as `pre`, and each sublayer's output too (Gemma 2)."""
    norm_type: str = "layer"
    """`layer`: LayerNorm; `rms`: RMSNorm (Zhang and Sennrich 2019); `scale`: ScaleNorm (Nguyen and
    Salazar 2019)."""
    norm_eps: float = 1e-5
    """Added to the variance, with `rms` to the mean square; with `scale` the least length."""
    embedding_scale: str = "token"
    """What sqrt(model_dim) multiplies: the vector of a `token`, its `sum` with the position, or
    `none` of them."""
    positions: str = "sinusoid"
    """`sinusoid`: added to the embedding; in self-attention, in their place: `relative`, a vector
    for each distance (Shaw et al. 2018), or `rotary` (Su et al. 2021)."""
    max_relative_distance: int = 16
    """Of positions that are `relative`: those further away count as that far."""
    fix_norm: bool = False
    """Vectors of unit length in the embedding and the output matrix, which must be one (FixNorm;
    Nguyen and Salazar 2019)."""
    fix_norm_scale: bool = False
    """A learnt factor of the logits beside `fix_norm`."""
    attention_init: str = "xavier"
    """`xavier`: uniform, as in fairseq; `small`: N(0, sqrt(2 / (5 model_dim))) (SmallInit; Nguyen
    and Salazar 2019)."""
    dropout: float = 0.1
    """After embeddings and each sublayer."""
    attention_dropout: float = 0.0
    """On attention probabilities, after the softmax."""
    activation_dropout: float = 0.0
    """Inside the feed-forward, after the activation and its gate."""
    head_dropout: float = 0.0
    """Probability with which a row loses a head of each attention (DropHead; Zhou et al. 2020)."""
    head_dropout_schedule: str = "constant"
    """`v`: from `head_dropout` down to 0 at the end of the learning rate's warm-up, and up to it
    again at the end of training."""
    encoder_layerdrop: float = 0.0
    """Probability with which an update leaves out a layer of the encoder (LayerDrop; Fan et al.
    2019)."""
    decoder_layerdrop: float = 0.0
    learns_layerdrop: bool = False
    """Each layer learns its own probability; the mean of a side's is the given one."""

    def __post_init__(self) -> None:
        kind = next(field.default for field in fields(self) if field.name == "architecture")
        if self.architecture != kind:
            raise ConfigError(
                f"architecture of a {type(self).__name__} must be {kind!r}, got "
                f"{self.architecture!r}; another one has a configuration of its own"
            )
        least = dict.fromkeys(("num_heads", "ffn_dim", "vocab_size"), 1) | {
            "num_encoder_layers": self.least_encoder_layers,
            "num_decoder_layers": self.least_decoder_layers,
        }
        for name, low in least.items():
            if getattr(self, name) < low:
                raise ConfigError(f"{name} must be >= {low}, got {getattr(self, name)}")
        self._check_width()
        for name, allowed in self.choices.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{name} of architecture {self.architecture!r} must be one of {allowed}, "
                    f"got {getattr(self, name)!r}"
                )
        if self.max_relative_distance < 1:
            raise ConfigError(
                f"max_relative_distance must be >= 1, got {self.max_relative_distance}"
            )
        if not self.norm_eps > 0.0:
            raise ConfigError(f"norm_eps must be > 0, got {self.norm_eps}")
        if self.fix_norm_scale and not self.fix_norm:
            raise ConfigError(
                "fix_norm_scale needs fix_norm: true, got fix_norm: false; set both or neither"
            )
        rates = ("dropout", "attention_dropout", "activation_dropout", "head_dropout")
        for name in (*rates, "encoder_layerdrop", "decoder_layerdrop"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(f"{name} must be in [0, 1), got {getattr(self, name)}")
        self._check_layerdrop()

    def _check_fix_norm(self, tie_embeddings: bool) -> None:
        if self.fix_norm and not tie_embeddings:
            raise ConfigError(
                "fix_norm needs tie_embeddings: true, since its vectors are those of the output "
                "matrix, got tie_embeddings: false; change one of them"
            )

    def _check_table(self, max_positions: int) -> None:
        if (self.positions == "learnt") != (max_positions > 0) or max_positions < 0:
            raise ConfigError(
                "max_positions must be > 0 for positions 'learnt' and 0 for others, got "
                f"{max_positions} for {self.positions!r}"
            )

    def _check_width(self) -> None:
        """Raise ConfigError for a width that sinusoids or heads have no place in."""
        # Sinusoids need two frequencies at least.
        if self.model_dim < 4 or self.model_dim % (2 * self.num_heads):
            raise ConfigError(
                f"model_dim must be >= 4 and a multiple of 2 * num_heads = {2 * self.num_heads}, "
                f"got {self.model_dim}"
            )

    def _check_block(self, block: str) -> None:
        """Raise ConfigError for sizes that a block has no place for."""
        if block == "weighted" and self.ffn_dim % self.num_heads:
            raise ConfigError(
                "block: weighted gives each head its share of ffn_dim, which must be a multiple of "
                f"num_heads = {self.num_heads}, got {self.ffn_dim}"
            )

    def _check_layerdrop(self) -> None:
        """Raise ConfigError for rates of layers that there are none of."""
        for side in ("encoder", "decoder"):
            rate = getattr(self, f"{side}_layerdrop")
            if rate and not getattr(self, f"num_{side}_layers"):
                raise ConfigError(
                    f"{side}_layerdrop = {rate} leaves out layers of the {side}, but "
                    f"num_{side}_layers is 0; set it to 0"
                )
        if self.learns_layerdrop and not (self.encoder_layerdrop or self.decoder_layerdrop):
            raise ConfigError(
                "learns_layerdrop shares out encoder_layerdrop and decoder_layerdrop, and both are "
                "0; set one of them"
            )

    @property
    def first_activation(self) -> str:
        """Activation of the first of a Macaron layer's two feed-forwards."""
        return self.activation

    @property
    def norm_affine(self) -> bool:
        """Whether the norms of layers have gains and biases of their own."""
        return True

    @property
    def attention_bias(self) -> bool:
        """Whether the projections of attention have biases."""
        return True

    @property
    def attention_soft_cap(self) -> float:
        """What scores of attention come near and never reach; 0 is none."""
        return 0.0

    @property
    def ffn_bias(self) -> bool:
        """Whether the feed-forward has biases."""
        return True

    @property
    def biases_scores(self) -> bool:
        """Whether scores of self-attention have numbers added that differ from head to head."""
        return self.positions == "relative_bias"

    @property
    def head_width(self) -> int:
        """Features of one head of attention."""
        return self.model_dim // self.num_heads

    @property
    def attention_width(self) -> int:
        """Features of all heads of attention together."""
        return self.num_heads * self.head_width

    @property
    @abstractmethod
    def family(self) -> str:
        """What a bundle's manifest calls models of this kind."""

    def batch_cost(self, source_length: int, target_length: int) -> int:
        """What one row of a padded batch counts in the token budget: its longer side."""
        return max(source_length, target_length)
