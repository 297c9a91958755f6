"""Programs for maintainers, each run as `python -m dev.NAME`; none of them is in the package.

Some make data: parameters of simulated pairs (fit), learning rates (rates), reference runs (export, smollm2),
measurements of base models (pilots), public runs and their settings (public_runs, public_settings), the suite's record
(suite), small models (zoo, planted_tiny). Some score or check: forecasts (forecast_scores, paces, law_scores,
zoo_scores), alarms (diagnose_cases, known_formats, known_worlds), lines and names (house), a GPU (gpu_check). Some draw
or write: badges, commands_page, record_explorer, try_page.
"""
