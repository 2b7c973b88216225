"""What came of loading weights: which tensors fit, which do not, and what named configuration is nearest."""

from __future__ import annotations

from dataclasses import dataclass

from mstar_plan.errors import WeightsError

SHOWN = 4  # names of each sort in a message


@dataclass(frozen=True)
class LoadReport:
    """How a file's tensors fit the networks.

    Attributes:
        file: Name of the file or folder.
        layout: "bundle", "transformers" or "weights" (this project's own).
        kind: "vjepa2_ac" (encoder and action-conditioned predictor), "vjepa2" (encoder and masked predictor), or
            "encoder" or "predictor" alone.
        nearest: Named configurations that are nearest to the networks.
        dtype: Of the weights once loaded.
        parameters: Numbers in all used tensors.
        bytes: That they take once loaded.
        missing: Tensors that a network needs and the file lacks.
        unexpected: Tensors that no network has.
        misshaped: "name: found, needed" of tensors of another shape.
        ignored: Names that are known not to matter: positions, optimiser, bookkeeping.
        encoder_key: Key of a bundle that the encoder was taken from: "encoder", or "target_encoder" where that is all.
    """

    file: str
    layout: str
    kind: str
    nearest: str
    dtype: str
    parameters: int
    bytes: int
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    misshaped: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    encoder_key: str = ""

    def lines(self) -> list[str]:
        """The report for people."""
        head = f"{self.file}: {self.kind}, {self.layout} layout, nearest to {self.nearest}"
        size = f"{self.parameters:,} parameters, {self.bytes / 1e6:,.1f} MB as {self.dtype}"
        taken = [f"encoder taken from: {self.encoder_key}"] if self.encoder_key else []
        return [head, size, *taken, *(f"{sort}: {_some(names)}" for sort, names in self._sorts().items() if names)]

    def check(self, *, strict: bool) -> None:
        """Refuses what does not fit.

        Args:
            strict: Refuse unexpected tensors too.

        Raises:
            WeightsError: Tensors are missing or misshaped, or unexpected.
        """
        wrong = {name: names for name, names in self._sorts().items() if names and name != "ignored"}
        if not strict:
            wrong.pop("unexpected", None)
        if not wrong:
            return
        told = "; ".join(f"{len(names)} {sort}: {_some(names)}" for sort, names in wrong.items())
        cure = "give the file of that model"
        if set(wrong) == {"unexpected"}:
            cure = "this network would compute something else with them left out; strict=false does so"
        raise WeightsError(
            f"{self.file} does not fit ({told}); nearest named configuration: {self.nearest}; {cure}",
            field=next(iter(wrong.values()))[0].partition(":")[0],
        )

    def _sorts(self) -> dict[str, tuple[str, ...]]:
        return {
            "missing": self.missing,
            "misshaped": self.misshaped,
            "unexpected": self.unexpected,
            "ignored": self.ignored,
        }


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")
