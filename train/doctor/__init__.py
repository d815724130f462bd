"""The data doctor: everything suspicious in a data set, as findings; it prints nothing."""

from __future__ import annotations

from train.data.dataset import MultiLabelData, Split
from train.doctor.features import feature_findings
from train.doctor.finding import Finding
from train.doctor.labels import label_findings
from train.doctor.names import name_findings
from train.doctor.rows import row_findings

__all__ = ["Finding", "examine"]


def examine(data: MultiLabelData, split: Split) -> list[Finding]:
    """Examine rows, labels, label names and features."""
    return [
        *row_findings(data, split),
        *label_findings(data, split),
        *name_findings(data.labels),
        *feature_findings(data, split),
    ]
