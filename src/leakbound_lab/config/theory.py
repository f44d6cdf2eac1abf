"""Settings of the closed forms of Zeng et al. 2022: utility and privacy in bits. Defaults are the paper's."""

from typing import Annotated, ClassVar

from pydantic import Field, Strict, model_validator

from leakbound_lab.config.settings import Settings, TableSection

Budgets = Annotated[
    tuple[Annotated[float, Field(gt=0, le=500)], ...], Strict(False), Field(min_length=1, max_length=100)
]
Variance = Annotated[float, Field(ge=1e-12, le=1e12)]
Clients = Annotated[int, Field(ge=2, le=1000)]

_BUDGETS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0)


class _Exchangeable(Settings):
    """Parameters of equal variances and equal covariances. The defaults are those of case 3."""

    n_clients: Clients = 101
    """Clients n."""
    variance: Variance = 30.0
    """σ_m², variance of each client's parameter."""
    covariance: Annotated[float, Field(allow_inf_nan=False)] = 2.0
    """σ_k², covariance of any two clients' parameters."""

    @model_validator(mode="after")
    def _is_a_covariance(self) -> "_Exchangeable":
        least = -self.variance / (self.n_clients - 1)
        if not least < self.covariance < self.variance:
            raise ValueError(
                f"covariance = {self.covariance}: {self.n_clients} clients of variance {self.variance} can "
                f"have equal covariances above {least:.6g} and below {self.variance:.6g} only"
            )
        return self


class IndependentCase(Settings):
    """Case 1: independent parameters of variances drawn from (0, 1), independent noise (Fig. 4)."""

    n_clients: Clients = 101
    """Clients n."""
    draws: Annotated[int, Field(ge=1, le=1000)] = 10
    """Draws of the variances, one replica each. The paper shows one."""
    mi_budgets: Budgets = _BUDGETS
    """Budgets ε, bits."""


class DependentCase(_Exchangeable):
    """Case 2: exchangeable parameters, independent noise (Fig. 5)."""

    variance: Variance = 2.0
    """σ_m², variance of each client's parameter."""
    covariance: Annotated[float, Field(allow_inf_nan=False)] = 1.8
    """σ_k², covariance of any two clients' parameters."""
    mi_budgets: Budgets = _BUDGETS
    """Budgets ε, bits."""


class CorrelatedCase(_Exchangeable):
    """Case 3: exchangeable parameters, exchangeable noise (Fig. 7)."""

    mi_budgets: Budgets = _BUDGETS[1:]
    """Budgets ε, bits."""
    boxes: Annotated[tuple[Variance, ...], Strict(False), Field(max_length=100)] = (1.0, 0.1, 0.01)
    """Least noise variances σ² of searches whose box excludes the optimum. The paper does not state its
    box."""
    reach: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Largest (n − 1)|σ_e²|/σ² in these boxes."""


class NoiseSurface(_Exchangeable):
    """Utility and privacy over σ² and σ_e² in case 3 (Fig. 6)."""

    mi_budgets: Budgets = (1.0, 3.0, 4.0, 5.0, 8.0, 10.0)
    """Budgets ε, bits, one panel each."""
    points: Annotated[int, Field(ge=5, le=201)] = 31
    """Noise variances, and covariances, of the grid."""


class GeneralCase(Settings):
    """Any covariance of the parameters, a budget for each client."""

    n_clients: Annotated[int, Field(ge=3, le=1000)] = 20
    """Clients n."""
    factors: Annotated[int, Field(ge=1, le=1000)] = 2
    """Common factors that the drawn parameters depend on."""
    common: Annotated[float, Field(gt=0, lt=1)] = 0.9
    """Fraction of each parameter's variance that the factors explain."""
    spread: Annotated[float, Field(ge=0, lt=1)] = 0.5
    """Budgets lie within this fraction of their mean."""
    draws: Annotated[int, Field(ge=1, le=1000)] = 10
    """Draws of covariance and budgets, one replica each."""
    mi_budgets: Budgets = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)
    """Means of the budgets, bits."""


class TheoryConfig(TableSection):
    """Utility against privacy in closed form. A table that is null is left out."""

    TABLES: ClassVar[tuple[str, ...]] = ("case1", "case2", "case3", "surface", "general")

    case1: IndependentCase | None = IndependentCase()
    """Independent parameters, independent noise."""
    case2: DependentCase | None = DependentCase()
    """Dependent parameters, independent noise."""
    case3: CorrelatedCase | None = CorrelatedCase()
    """Dependent parameters, dependent noise."""
    surface: NoiseSurface | None = NoiseSurface()
    """Utility over the noise's variance and covariance."""
    general: GeneralCase | None = GeneralCase()
    """Any covariance, a budget for each client."""

    def tables(self) -> tuple[str, ...]:
        """List the tables that this configuration makes."""
        return tuple(name for name in self.TABLES if getattr(self, name) is not None)
