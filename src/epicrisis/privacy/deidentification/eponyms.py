"""Words that are names of people in notes without naming a person: eponyms, and words of the language."""

from __future__ import annotations

_EPONYMS = """
Addison Alzheimer Apgar Argyll Babinski Baker Bair Bankart Barrett Barthel Bartter Behcet Bell Bence Berger Bernard
Biot Bishop Blakemore Blalock Borg Bowen Bowman Braden Braxton Breslow Brock Broviac Brown Brudzinski Buerger Burkitt
Bruce Celsius Chagas Charcot Charlson Cheyne Chiari Child Chvostek Clark Cobb Colles Conn Coombs Cormack Creutzfeldt
Crohn Cullen Cushing Dandy Dix Dobhoff Doppler Down Dressler Duchenne Duke Dukes Dupuytren Ebstein Ehlers Ehrlich
Eisenmenger Epley Epstein Ewing Fabry Fahrenheit Fallot Fanconi Felty Finkelstein Fitzpatrick Foley Fontan Forrest
Fournier Fowler Framingham Frank Gardner Gaucher Gilbert Gillick Glasgow Gleason Goodpasture Gram Graves Grey Groshong
Guillain Barre Hallpike Hamilton Harris Hartmann Hashimoto Hawkins Heberden Heimlich Henle Hickman Hicks Hill Hodgkin
Hoffmann Holter Homan Homans Horner Howell Hunt Huntington Jackson Jacob Jakob Janeway Jarisch Johnson Jolly Jones
Kaplan Kaposi Karnofsky Kawasaki Kegel Kerley Kernig Killip Kirschner Klinefelter Kocher Koplik Korotkoff Korsakoff
Krukenberg Kussmaul Lachman Langerhans Lasegue Leriche Lewy Lhermitte Likert Lisfranc Lou Gehrig Ludwig Lugol Lyme
Lynch Macintosh Mallampati Mallory Mann Mantoux Marcus Gunn Marfan Markle Mayo McBurney McGill McMurray Meckel Meier
Meniere Merkel Miller Mirizzi Mobitz Mohs Montgomery Morse Morton Munchausen Murphy Myers Neer Nissen Norton Norwood
Osgood Osler Osteen Paget Pap Papanicolaou Parkinson Pearson Penrose Perthes Peyronie Phalen Plummer Pott Pratt
Prinzmetal Pugh Quincke Quinton Ranson Ranvier Raynaud Reed Reiter Reye Richter Ringer Rinne Romberg Roth Roux Rovsing
Salem Salter Sachs Schatzki Schilling Schirmer Schlatter Schwann Sengstaken Sheehan Shiley Sims Sister Sjogren Snellen
Spurling Stanford Starling Steri Sternberg Stevens Stokes Strauss Sturge Swan Ganz Takayasu Tanner Tenckhoff Thomas
Tinel Todd Toupet Tourette Trendelenburg Trousseau Turner Valsalva Vincent Virchow Waldenstrom Wallenberg Wartenberg
Weber Wegener Weil Weiss Wells Wenckebach Wernicke West Westergren Whipple White Whitmore Wilms Wilson Wolff Wood
Yankauer Zenker Ziehl Ziprin Zollinger Ellison
Angeles Ashworth Beck Berg Billroth Binet Bosniak Boston Brugada Caprini Clavien Danis Dindo Fisher Fontaine Frykman
Garden Geneva Gustilo Hess Hurley Ishak Kellgren Lauge Lawrence Lown Lugano Lyon Milan Montreal Nottingham Paris Prague
Rankin Rome Rutherford Seattle Sokolow Sydney Tokyo Vienna Wagner Candida Serratia Nocardia Listeria Borrelia Brucella
"""
EPONYMS = frozenset(word.casefold() for word in _EPONYMS.split())
"""Names of diseases, signs, tests and devices. Behind a title or before a credential they name a person."""

_CLINICAL_NOUNS = """
disease disorder syndrome sign signs test tests testing tube tubes catheter catheters cath line lines drain drains
palsy lymphoma lymphomas sarcoma tumor tumour carcinoma score scores scale index criteria classification class grade
grading stage staging stain staining maneuver manoeuvre position positioning phenomenon procedure operation repair
fracture fractures contracture cyst cysts hernia node nodes nodule ulcer ulcers thyroiditis esophagus oesophagus
esophagitis dementia dementias hunter chorea parkinsonism anemia anaemia bodies body cell cells reflex response
monitor monitoring ultrasound study studies flow waveform signal signals solution lactate ring rings tear tears point
law equation formula method technique incision approach flap graft shunt stent valve bladder bag balloon mask suction
bed hugger hose stockings dressing shoulder tetralogy pneumonia breathing respirations respiration respiratory pulse
block rhythm tachycardia fistula pouch loop limb gastrectomy fundoplication virus infection fever arthropathy joint
foot deformity malformation effect angina vasculitis granulomatosis arteritis purpura nephritis hamartoma protein
proteins contractions exercise exercises chart hallpike harris pratt ganz barre barr weiss ellison pugh stokes johnson
hicks vascular curve kidney levels antigen vaccine type protocol regimen trial risk neuropathy neuroma paralysis
aphasia encephalopathy psychosis heart variant consensus guideline guidelines diverticulum attack attacks
"""
CLINICAL_NOUNS = frozenset(_CLINICAL_NOUNS.split())
"""Words behind an eponym."""

_WORDS = """
walker date unit number dob mrn birth account dictated results continue per transferred driver portal logged hemoglobin
tylenol specimen device
a about abdomen abdominal above acute admission admit admitted after again age alert alive all allergies allergy alone
also am amber an ana and angel any april are arm art as ask assessment at attending august away awake back bank banks
baby base be been bed before best better bill black bleeding blood blue body bone both bowel boy breast brook brother
brown but by call called came can cancer care case cell chance chart chase chest chief child christian chronic city
clean clear clinic close code cold come comfort common complaint condition consult contact cook cough country course
court cross crystal current daily dad daughter dawn day days dean december dear denies diabetes diagnosis diet
discharge do doctor does dose down dr drug drugs due each ear early east edema er eve exam eye eyes faith fall falls
family father february feet felt female fever few field fine first fish follow followed food foot for ford found fox
frank free french friday friend from full gait gene general german girl given go gold good got grace gray green grey
guy had hair half hall hand happy hard has have he head health heart heath heavy help her here hi high hill him his
history home hope hospital hour house how hunt husband i ice if ill in infection internal iris is it its ivy january
jean job joint joy judge july june just keen keep key king knee know lab labs lady lake land lane large last law left
leg less life light like line little live liver long loss love low lower lung lungs made main major male man many
march mark marry mason may me mean med medical medicine medication medications melody mercy met mid mild miles mom
monday moon more most mother mouth much must my nail name nausea near neck negative neuro never new next night nine no
noble noel none nor normal north nose not note now nurse nursing of off office old olive on once one only or order
other our out over own page pain pale palm park part past pat patient patience pearl penny per person phone physical
physician pike plan please plus point pool poor positive post power present presents present pressure price primary
prince prior problem prudence pt pulse put rash rate ray read reason red regular relief rest review rice rich right
ring river rivers rn road rob robin rock rod room root rose round ruby rush sage said same sand sands saturday savage
saw say second see seen sept september severe sex sharp she shift short should shown side sign signed silver since sir
sister six skin sleep small so social soft some son soon sore south speech spring stable staff star start state status
stay step stern still stone stop stool strong study such sue summary summer sun sunday surgery surgical sweet swelling
swing take team ten test than that the then there therapy they this three thursday time to today told tower transfer
treatment tree trinity tuesday two under unit up upon urine us van very violet visit vital vitals wade walk wall walls
ward warm was water waters way we wednesday week weeks weight well wells went were west what wheeler when white who
wife will winter wise with wolf woman wood woods work worth wound year years yes yet you young your zone social worker
resident intern fellow service history vomiting consulted reports states among hence seven infant oral con orange
"""
ORDINARY_WORDS = frozenset(_WORDS.split())
"""Words that lists of names have too, and words that begin sentences and headings."""

_WARD_WORDS = """
clinic radiology medicine surgery emergency oncology recovery triage rehab english spanish may day week bed room dr mr
mrs ms january february march april june july august september october november december monday tuesday wednesday
thursday friday saturday sunday his her the floor ward unit icu telemetry hospice dialysis nursing obstetrics intensive
critical care general internal physical occupational speech respiratory infectious disease pulmonary cardiac vascular
trauma burn stepdown observation bedside goal inpatient outpatient department service medical surgical cancer stroke
sepsis atrial renal hepatic gastric pain wound sleep palliative primary urgent acute family adult child
"""
WARDS = frozenset(_WARD_WORDS.split())
"""Words with a capital behind `in`, `to` or `with` that are no towns and no companies, if all are such words."""

_BRANDS = """
abilify actos adderall advair advil aggrenox albuterol aldactone aleve allegra ambien apidra aricept arixtra asacol
ativan atrovent augmentin avandia avelox azopt bactrim basaglar benadryl benicar betadine botox breo brilinta bumex
buspar bystrol calan carafate cardizem cardura catapres celebrex celexa chantix cialis cipro claritin cleocin clozaril
colace combivent compazine concerta coreg cosopt coumadin cozaar crestor cymbalta decadron demadex demerol depakote
detrol diamox diflucan dilantin dilaudid diovan diskus ditropan duoneb duragesic dulera ecotrin effexor elavil eliquis
ellipta enbrel ensure entresto epogen eucerin farxiga fentanyl flagyl flexeril flomax flonase flovent florastor forteo
fosamax geodon gleevec glucophage glucotrol glucerna haldol harvoni humalog humira humulin hytrin imdur imitrex imodium
inderal invanz isordil januvia jardiance kayexalate keflex keppra ketek klonopin klor-con lamictal lanoxin lantus lasix
levaquin levemir levophed levothroid lexapro librium lidoderm lipitor lomotil lopressor lortab lotensin lovenox lunesta
lupron lyrica macrobid maalox metamucil micardis miralax mirapex mobic motrin mucinex namenda narcan naprosyn neurontin
nexium norco norvasc novolin novolog nuvigil ozempic oxycontin pamelor paxil pepcid percocet phenergan plaquenil plavix
pletal pradaxa premarin prevacid prilosec prinivil procardia procrit prograf prolia prozac pulmicort reglan relafen
remeron remicade renvela requip respimat restoril rilutek risperdal ritalin rituxan robaxin robitussin rocephin senokot
sensipar seroquel sinemet singulair solostar soma spiriva stelara strattera suboxone symbicort synthroid tamiflu
tegretol tenormin thorazine topamax toprol toradol tradjenta trazodone trelegy tricor trileptal trulicity tums tylenol
ultram unasyn valium valtrex vasotec ventolin viagra vicodin victoza vytorin vyvanse wellbutrin xalatan xanax xarelto
xopenex yervoy zantac zaroxolyn zestril zetia zithromax zocor zofran zoloft zosyn zyloprim zyprexa zyrtec zyvox
"""
BRANDS = frozenset(_BRANDS.split())
"""Names of drugs in the shops that do not end as drugs do."""
