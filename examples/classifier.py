"""Fine-tune a classifier on a table and predict with it: python examples/classifier.py MODEL reviews.csv OUT"""

import sys

import electra

model, table, out = sys.argv[1:]
electra.finetune("table", model=model, train=table, text="review", label="stars", out=out)
classifier = electra.load(f"{out}/seed-0/model")
for prediction in classifier.predict(["a fine film .", "two hours too long ."]):
    print(prediction["label"])
