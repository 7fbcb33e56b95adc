import os
print(os.environ["APOLLO_IN_ORDERS"])
