"""Fine-tuning of an encoder: tasks, heads, the paper's hyperparameters, scores. It does not import `electra.pretraining`.

`task` defines the interfaces, `registry` the table of tasks, `recipe` the hyperparameters (Table 7 of the paper);
`run` trains, scores and saves.
"""
