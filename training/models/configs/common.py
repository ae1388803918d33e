"""Options that the configurations of all architectures share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

from training.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ModelConfig(ABC):
    """Options that the configurations of all architectures share."""

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
    """The allowed values of fields with named choices."""
    decoding_budget: ClassVar[int] = 8192
    """Budget of a decoded batch, beams x `batch_cost`: a few hundred short sentences."""

    architecture: str
    """The kind of model, a key of `architectures.ARCHITECTURES`."""
    model_dim: int = 256
    num_heads: int = 4
    ffn_dim: int = 1024
    """Inner size of a feed-forward; layers of Macaron and joint models have two feed-forwards."""
    activation: str = "relu"
    """Activation of the feed-forward: `relu`, `gelu`, `gelu_tanh` (approximated by tanh), `silu`,
    or gated `reglu`, `geglu`, `geglu_tanh`, `swiglu`. Gated ones have three matrices of `ffn_dim`;
    two thirds of it keep the number of parameters."""
    ffn_hidden_layers: int = 1
    """Hidden layers of the feed-forward, each of size `ffn_dim`: 1, or 2 with an activation after
    each and no residual inside (the ablation of Lu et al. 2019)."""
    num_encoder_layers: int = 3
    num_decoder_layers: int = 3
    vocab_size: int = 8000
    """Pieces of the joint vocabulary."""
    norm: str = "pre"
    """`pre`: before each sublayer, and once at the end; `post`: after each residual; `sandwich`
    (encoder-decoders only): `pre`, and also after each sublayer (Gemma 2)."""
    norm_type: str = "layer"
    """`layer`: LayerNorm; `rms`: RMSNorm (Zhang and Sennrich 2019); `scale`: ScaleNorm (Nguyen and
    Salazar 2019)."""
    norm_eps: float = 1e-5
    """Added to the variance (`rms`: to the mean square); for `scale` the smallest length."""
    embedding_scale: str = "token"
    """The vectors that are multiplied by sqrt(model_dim): the `token` vector, its `sum` with the
    position, or `none`."""
    positions: str = "sinusoid"
    """`sinusoid`: added to the embedding. In self-attention instead: `relative`, a vector per
    distance (Shaw et al. 2018), or `rotary` (Su et al. 2021)."""
    max_relative_distance: int = 16
    """`relative` positions: larger distances count as this one."""
    fix_norm: bool = False
    """Vectors of unit length in the embedding and the output matrix, which must be shared (FixNorm;
    Nguyen and Salazar 2019)."""
    fix_norm_scale: bool = False
    """Only with `fix_norm`: multiply the logits by a learnt factor."""
    attention_init: str = "xavier"
    """`xavier`: uniform, as in fairseq; `small`: N(0, sqrt(2 / (5 model_dim))) (SmallInit; Nguyen
    and Salazar 2019)."""
    dropout: float = 0.1
    """Dropout after embeddings and each sublayer."""
    attention_dropout: float = 0.0
    """Dropout of attention probabilities."""
    activation_dropout: float = 0.0
    """Dropout inside the feed-forward, after the activation and its gate."""
    head_dropout: float = 0.0
    """Probability of dropping a head of each attention for a row (DropHead; Zhou et al. 2020)."""
    head_dropout_schedule: str = "constant"
    """`v`: falls from `head_dropout` to 0 at the end of the learning rate's warm-up, then rises to
    it until the end of training."""
    encoder_layerdrop: float = 0.0
    """Probability of dropping a layer of the encoder in an update (LayerDrop; Fan et al. 2019)."""
    decoder_layerdrop: float = 0.0
    learns_layerdrop: bool = False
    """Each layer learns its own probability; their mean on each side is the given one."""

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
        """Raise ConfigError for a width that does not suit the sinusoids or heads."""
        # Sinusoids need at least two frequencies.
        if self.model_dim < 4 or self.model_dim % (2 * self.num_heads):
            raise ConfigError(
                f"model_dim must be >= 4 and a multiple of 2 * num_heads = {2 * self.num_heads}, "
                f"got {self.model_dim}"
            )

    def _check_block(self, block: str) -> None:
        """Raise ConfigError for sizes that the block does not support."""
        if block == "weighted" and self.ffn_dim % self.num_heads:
            raise ConfigError(
                "block: weighted gives each head its share of ffn_dim, which must be a multiple of "
                f"num_heads = {self.num_heads}, got {self.ffn_dim}"
            )

    def _check_layerdrop(self) -> None:
        """Raise ConfigError for a LayerDrop rate of layers that do not exist."""
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
        """Upper bound of attention scores, cap * tanh(score / cap); 0 turns it off."""
        return 0.0

    @property
    def ffn_bias(self) -> bool:
        """Whether the feed-forward has biases."""
        return True

    @property
    def biases_scores(self) -> bool:
        """Whether a bias that differs between heads is added to the scores of self-attention."""
        return self.positions == "relative_bias"

    @property
    def head_width(self) -> int:
        """Features per attention head."""
        return self.model_dim // self.num_heads

    @property
    def attention_width(self) -> int:
        """Features of all attention heads together."""
        return self.num_heads * self.head_width

    @property
    def source_width(self) -> int:
        """Number of features of the states that source attention reads."""
        return self.model_dim

    @property
    @abstractmethod
    def family(self) -> str:
        """The name of this kind of model in a bundle's manifest."""

    def batch_cost(self, source_length: int, target_length: int) -> int:
        """Cost of one row of a padded batch in the token budget: its longer side."""
        return max(source_length, target_length)
