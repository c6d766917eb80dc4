"""The tables and figures as `interp reproduce` finds them."""

from __future__ import annotations

from interp_studies.random_attention import memorization, scaling, tables
from interp_studies.random_attention.circuit import study as circuit

TABLE_1 = tables.TABLE_1.artefact()
TABLE_2 = tables.TABLE_2.artefact()
TABLE_3 = tables.TABLE_3.artefact()
TABLE_4 = memorization.TABLE_4.artefact()
TABLE_5 = scaling.TABLE_5.artefact()
TABLE_9 = tables.TABLE_9.artefact()
TABLE_10 = tables.TABLE_10.artefact()
TABLE_11 = scaling.TABLE_11.artefact()
FIGURE_2 = scaling.FIGURE_2.artefact()
FIGURE_3 = circuit.FIGURE_3
