"""`python -m train search METHOD`: hyper-parameters that score best on validation rows.

plan.py     the method, its settings, the run of a trial
space.py    which hyper-parameters vary, between what
study.py    the trials, in a file that processes share and that survives their death
trial.py    one trial: a training run, told epoch by epoch, given up where others are better
local.py    trials one after the other, here
on_ray.py   trials on the machines of a Ray cluster
results.py  what came out: the best preset, all trials
page.py     history, values and importance as plots
command.py  the command line
"""
