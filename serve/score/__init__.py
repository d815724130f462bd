"""`python -m serve score BUNDLE`: whole files of rows in, their best labels out, chunk by chunk.

command.py   the command line and its progress bar
plan.py      which chunks there are, which are finished; owns the folder of a job
sources.py   rows of a file by chunk; lines.py and arrays.py read the formats
scorer.py    one chunk: read, score, write
local.py     chunks in processes of this machine; on_ray.py: on a Ray cluster
"""
