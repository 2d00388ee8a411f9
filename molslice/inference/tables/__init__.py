"""Prediction of tables of any length: files in, rows out in the same order.

Modules:
    table: Predicts files in chunks that can be resumed.
    ranked: Ranks files by goals.
    measured: Compares predictions with measured values in the table.
    chunk_log: The finished chunks of an unfinished prediction.
    sinks: Writes predictions as CSV, Parquet or JSON lines.
    result_formats: Writes rows of a table of predictions as CSV, SD file or workbook.
    folder: Predicts to a folder of files.
    store_table: Writes a store as a table.
    submission: Writes submissions to the PCQM4M leaderboard.
    cluster: Predicts on a Ray cluster.
"""
