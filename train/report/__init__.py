"""`python -m train report RUN...`: what finished runs did, as one page and a few terminal tables.

runs.py       a run folder read back, its rows scored again
costs.py      parameters, training and inference costs beside the published ones
labels.py     scores by label, by label frequency, by size of the label set; gains and losses
gradients.py  what the energy network of a run believes about pairs of labels
relations.py  which labels it holds to be related, beside the training rows
study.py      runs that differ in one setting
tables.py     a table, for the page and for the terminal
figures.py    drawings, as SVG
page.py       sections of tables and figures, and the HTML around them
command.py    the command line
"""
