from leakbound.channels.randomized_response import RandomizedResponse as RandomizedResponse
from leakbound.engine.accountant import Account as Account
from leakbound.engine.accountant import LeakageAccountant as LeakageAccountant
from leakbound.engine.engine import ChannelEngine as ChannelEngine
from leakbound.engine.ledger import Ledger as Ledger
from leakbound.engine.refusals import BudgetError as BudgetError
from leakbound.engine.refusals import GuaranteeError as GuaranteeError
from leakbound.engine.targets import Capacity as Capacity
from leakbound.engine.targets import Identification as Identification
from leakbound.engine.targets import Leakage as Leakage
from leakbound.engine.targets import Reconstruction as Reconstruction
from leakbound.engine.transformer import Channel as Channel

__version__: str
