"""The probe: `analysis` measures, `result` holds, `verdict` judges, `figures` shows."""
