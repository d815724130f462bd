"""`python -m train report RUN...`: what finished runs did, as one page and a few terminal tables.

runs.py       a run folder read back, its rows scored again
across.py     several runs: means over seeds, beside the papers, gains and losses
calibration.py  whether scores are shares of true cells
costs.py      parameters, training and inference costs beside the published ones
labels.py     scores by label, by label frequency, by size of the label set; gains and losses
gradients.py  what the energy network of a run believes about pairs of labels
relations.py  which labels it holds to be related, beside the training rows
study.py      runs that differ in one setting
tables.py     a table, for the page and for the terminal
drawing.py    how a figure looks
figures.py    drawings, as SVG
sections.py   what a page is made of
page.py       the sections of each run, and the HTML around all
command.py    the command line
"""
